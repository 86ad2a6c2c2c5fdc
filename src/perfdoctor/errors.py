"""Which errors can a user act on?"""

from __future__ import annotations

import errno

#: One line that somebody reads. Two paths of the system's longest fit into it.
MOST_CHARACTERS = 10_000


def bounded(text: str) -> str:
    """The text; of a long one, which quotes what a file holds, its beginning and its end."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[:800]} … {text[-200:]}"


class PerfdoctorError(Exception):
    """Something you can fix: `what` happened, and what to `do`, one line each. As text it says both.

    The commands print it without a traceback, in one place (`cli/main.py`). Everything else that is raised is a bug of
    ours and keeps its traceback.
    """

    what: str
    do: str

    def __init__(self, what: str, *, do: str) -> None:
        self.what = bounded(what)
        super().__init__(self.what)
        self.do = do

    def __str__(self) -> str:
        return f"{self.what} → {self.do}"

    def __reduce__(self) -> tuple[object, ...]:
        """Worker processes send it: without this, unpickling calls the class with `what` alone."""
        return _rebuilt, (type(self), self.what, self.do)


class UsageError(PerfdoctorError):
    """Options that cannot be used, with this recording or at all: `do` names valid ones. The exit code is 2."""


#: What the system says of a call that makes no sense. Of a file, a disk, a network or a limit it says something else.
_SENSELESS = (
    errno.EBADF,
    errno.ECHILD,
    errno.EDEADLK,
    errno.EFAULT,
    errno.EINVAL,
    errno.ENOTTY,
    errno.ESPIPE,
    errno.ESRCH,
)


def is_a_bug(error: OSError) -> bool:
    """Is it an error of ours, which keeps its traceback, and nothing that a user can act on?

    A path that is named may be of a strange file system, which refuses what others do.
    """
    return error.filename is None and ((error.errno is None and type(error) is OSError) or error.errno in _SENSELESS)


def _rebuilt(kind: type[PerfdoctorError], what: str, do: str) -> PerfdoctorError:
    return kind(what, do=do)
