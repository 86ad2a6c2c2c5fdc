"""Which errors can a user act on?"""

from __future__ import annotations


class PerfdoctorError(Exception):
    """Something you can fix: `what` happened, and what to `do`, one line each. As text it says both.

    The commands print it without a traceback, in one place (`cli/main.py`). Everything else that is raised is a bug of
    ours and keeps its traceback.
    """

    what: str
    do: str

    def __init__(self, what: str, *, do: str) -> None:
        super().__init__(what)
        self.what = what
        self.do = do

    def __str__(self) -> str:
        return f"{self.what} → {self.do}"

    def __reduce__(self) -> tuple[object, ...]:
        """Worker processes send it: without this, unpickling calls the class with `what` alone."""
        return _rebuilt, (type(self), self.what, self.do)


class UsageError(PerfdoctorError):
    """Options that cannot be used, with this recording or at all: `do` names valid ones. The exit code is 2."""


def _rebuilt(kind: type[PerfdoctorError], what: str, do: str) -> PerfdoctorError:
    return kind(what, do=do)
