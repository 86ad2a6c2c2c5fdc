"""Which process did the tool start in place of the program? Our end of the pipes to `child_entry.py`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from pathlib import Path

from msgspec import Struct, field

_CHILD_ENTRY = Path(__file__).with_name("child_entry.py")
_FIRST_FREE = 3  # 0, 1 and 2 may be closed, and must not be given to the tool's pipes


class Entry(Struct, frozen=True):
    """The process that the tool started. It becomes the program, or with an environment waits for the one we start."""

    pid: int
    environment: dict[bytes, bytes] = field(default_factory=dict)


class ChildWatch:
    """Two pipes to `child_entry.py`, and copies of our standard output and error, which the tool passes on to it."""

    def __init__(self) -> None:
        self.reading, sending = os.pipe()
        os.set_blocking(self.reading, False)
        waiting, self._answering = os.pipe()
        self._received = b""
        self.is_over = False  # the other end was closed
        self._passed = [_passed_on(number) for number in (sending, waiting)]
        os.close(sending)
        os.close(waiting)
        # A descriptor that was closed at our start may have been reused since; only the user's are inheritable.
        self._passed += [_passed_on(number) if is_inherited(number) else -1 for number in (1, 2)]

    def words(self) -> list[str]:
        """The beginning of the command for the tool to start; the program's words follow."""
        mask = os.umask(0o077)  # it can only be read by setting it
        os.umask(mask)
        return [sys.executable, "-I", "-S", str(_CHILD_ENTRY), *map(str, [os.getpgrp(), mask, *self._passed])]

    def close_passed(self) -> None:
        """Close the ends that the tool has inherited, once it has been started."""
        for number in self._passed:
            if number >= 0:
                os.close(number)

    def read(self) -> Entry | None:
        """The message, None until it has arrived as a whole. A process that could not send it starts no program."""
        try:
            piece = os.read(self.reading, 1 << 16)
        except BlockingIOError:
            return None
        self._received += piece
        if self._received.endswith(b"\0\0"):
            pid, *variables = self._received[:-2].split(b"\0")
            pairs = (variable.partition(b"=") for variable in variables)
            return Entry(int(pid), {name: value for name, _, value in pairs if name})
        self.is_over = not piece
        return None

    def answer(self, pid: int) -> None:
        """Send the program's pid: the process becomes the program, or waits for its end."""
        with contextlib.suppress(OSError):
            os.write(self._answering, str(pid).encode())

    def close(self) -> None:
        os.close(self.reading)
        os.close(self._answering)


def _passed_on(number: int) -> int:
    return fcntl.fcntl(number, fcntl.F_DUPFD, _FIRST_FREE)


def is_inherited(number: int) -> bool:
    """Does a program that is started now have this descriptor?"""
    try:
        return os.get_inheritable(number)
    except OSError:
        return False
