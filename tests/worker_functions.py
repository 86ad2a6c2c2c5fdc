"""What tests apply in worker processes: they import it by this name."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from perfdoctor.errors import UsageError


def squared(number: int) -> int:
    return number * number


def slower_first(number: int) -> int:
    """The first items take longest, so outcomes come in another order."""
    time.sleep(0.3 if number == 0 else 0)
    return number


def slow(number: int) -> int:
    time.sleep(0.2)
    return number


def refused(number: int) -> int:
    if number == 1:
        raise UsageError("no ones", do="Take a two.")
    return number


class _OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def broken(number: int) -> int:
    """A bug, and one whose exception cannot be unpickled."""
    if number == 1:
        raise ZeroDivisionError("a bug")
    if number == 2:
        raise _OddError(1, 2)
    return number


def not_to_be_sent(number: int) -> object:
    return (lambda: None) if number == 1 else number


def dies_once(marker: str) -> str:
    """As if the system had killed it for want of memory, the first time."""
    if marker and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return marker


def dies_always(number: int) -> int:
    if number == 1:
        os._exit(7)
    return number


def starts(folder: str) -> None:
    """Leaves its process id there, and is busy until it is ended."""
    Path(folder, str(os.getpid())).touch()
    while True:
        time.sleep(0.01)


def environment(name: str) -> tuple[str | None, bool]:
    return os.environ.get(name), "perfdoctor.cli.main" in sys.modules or "pytest" in sys.modules


def large(size: int) -> bytes:
    return b"x" * size
