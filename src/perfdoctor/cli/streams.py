"""What if a standard stream is closed, or cannot be written to? Then what goes there is lost, and nothing else is."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any, TextIO, cast

_INPUT, _OUTPUT, _ERROR = 0, 1, 2


def hold_places() -> None:
    """Take the places of closed standard streams, so that no file of ours gets them. Programs see them closed."""
    for number in (_INPUT, _OUTPUT, _ERROR):
        if not _is_open(number):
            os.open(os.devnull, os.O_RDWR)  # the lowest free number; a program that we start does not inherit it
    sys.stdin = sys.stdin or _nothing("r")
    sys.stdout = sys.stdout or _nothing("w")
    sys.stderr = sys.stderr or _nothing("w")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _nothing(mode: str) -> TextIO:
    return cast("TextIO", Path(os.devnull).open(mode))


def lose_unwritable_messages() -> None:
    """Let standard error take all that is written, and lose what cannot be: an error of a message ends no work.

    A stream that somebody put in its place inside this process is theirs.
    """
    if sys.__stderr__ is None or sys.stderr is not sys.__stderr__:
        return
    messages = io.BufferedWriter(_Forgiving(_ERROR, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(messages, sys.stderr.encoding, line_buffering=True)


class _Forgiving(io.FileIO):
    """A file whose writes do not fail."""

    def write(self, data: Any, /) -> int:
        length = memoryview(data).nbytes
        try:
            return super().write(data) or length  # None: a terminal that would have to be waited for
        except OSError:
            return length
