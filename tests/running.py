"""Programs that run on while a test does something to them: how are they started, and how are their ends awaited?"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.attaching import calling

_LONGEST_S = 60.0


def needs_ptrace() -> None:
    """Skips the test where no function can be called in a running program; fails it where PERFDOCTOR_REQUIRE_PTRACE is set."""
    why = _why_not()
    if why and os.environ.get("PERFDOCTOR_REQUIRE_PTRACE"):
        pytest.fail(why)
    if why:
        pytest.skip(why)


@functools.cache
def _why_not() -> str:
    if not calling.is_possible():
        return "Linux on x86-64 alone"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            calling.call(process.pid, 16)  # no code is there: that is found out only where it may be called
        except PerfdoctorError as error:
            return error.what if "forbids" in error.what else ""
        finally:
            process.kill()
    return ""


class Running:
    """A Python program and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process, self._output = process, output

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(_LONGEST_S)


@contextlib.contextmanager
def running(
    folder: Path, code: str, *words: str, python: str = sys.executable, until: str = "begun"
) -> Iterator[Running]:
    """The program, once it has printed `until`. It is killed at the end, with what it started."""
    output = folder / "output"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [python, "-c", code, *words], stdout=stream, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True
        )
    found = Running(process, output)
    try:
        awaited(lambda: until in found.output or not found.is_alive)
        assert found.is_alive, found.output
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def awaited(is_so: Callable[[], bool], seconds: float = _LONGEST_S) -> bool:
    """Wait until it is so; False where it is not in time."""
    until = time.monotonic() + seconds
    while not is_so() and time.monotonic() < until:
        time.sleep(0.02)
    return is_so()
