"""Our end of `child_entry.py`, which a tool starts in the program's place: where has it come out?"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

_CHILD_ENTRY = Path(__file__).with_name("child_entry.py")
_FIRST_FREE = 3  # 0, 1 and 2 may be closed, and the tool's must not land there


@dataclass(frozen=True)
class Place:
    """The process that the tool started. With an environment, it only keeps the place of the program, which is ours to
    start; else it becomes the program.
    """

    pid: int
    environment: dict[bytes, bytes] = field(default_factory=dict)


class ChildWatch:
    """Two pipes to `child_entry.py`, and copies of our standard output and error, which the tool passes on to it."""

    def __init__(self) -> None:
        self.reading, telling = os.pipe()
        os.set_blocking(self.reading, False)
        waiting, self._answering = os.pipe()
        self._told = b""
        self.is_over = False  # nobody is left who could tell
        self._passed = [_passed_on(number) for number in (telling, waiting)]
        os.close(telling)
        os.close(waiting)
        # A descriptor that was closed when we were started may be one of our own by now; only the user's are inherited.
        self._passed += [_passed_on(number) if _is_inherited(number) else -1 for number in (1, 2)]

    def words(self) -> list[str]:
        """What the tool is to start, in front of the program's words."""
        told = [os.getpgrp(), _umask(), *self._passed]
        return [sys.executable, "-I", "-S", str(_CHILD_ENTRY), *map(str, told)]

    def close_passed(self) -> None:
        """To be called when the tool has been started."""
        for number in self._passed:
            if number >= 0:
                os.close(number)

    def read(self) -> Place | None:
        """None as long as not all was told. What could not be told did not start the program, and never will."""
        try:
            told = os.read(self.reading, 1 << 16)
        except BlockingIOError:
            return None
        self._told += told
        if self._told.endswith(b"\0\0"):
            pid, *variables = self._told[:-2].split(b"\0")
            pairs = (variable.partition(b"=") for variable in variables)
            return Place(int(pid), {name: value for name, _, value in pairs if name})
        self.is_over = not told
        return None

    def answer(self, pid: int) -> None:
        """The program has this pid: it may begin, or whoever keeps its place may go when it has ended."""
        with contextlib.suppress(OSError):
            os.write(self._answering, str(pid).encode())

    def close(self) -> None:
        os.close(self.reading)
        os.close(self._answering)


def _passed_on(number: int) -> int:
    return fcntl.fcntl(number, fcntl.F_DUPFD, _FIRST_FREE)


def _is_inherited(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:
        return False


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
