"""What does a command take: time, processor time, memory of it and of all that it starts?"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: Reading memory takes time: it is read so rarely that a command loses at most a twentieth of a core by it.
_READS_SHARE = 0.05
_SHORTEST_PAUSE_S = 0.005


class CommandError(Exception):
    """A command's exit code, and the last of what it said."""


@dataclass(frozen=True)
class Taken:
    """Of one command, or of a part of one. `peak_bytes`: of all its processes together, shared memory counted once."""

    seconds: float
    processor_s: float
    peak_bytes: int


#: Put before a Python program that measures parts of itself: `mark("load")` says how far it came since `begun()`.
MARKS = """
import json, os, sys, time
_marks, _begun = {}, 0.0
def begun():
    global _begun
    _begun = time.perf_counter(), time.process_time()
def mark(name):
    # Not ru_maxrss, which a child inherits from its parent.
    peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    _marks[name] = [time.perf_counter() - _begun[0], time.process_time() - _begun[1], peak]
def report():
    print(json.dumps(_marks))
"""


def run(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None) -> Taken:
    """Of the whole command, from its start to its end. CommandError where it fails."""
    return _run(command, folder, environment, subprocess.DEVNULL)[0]


def run_marked(command: Sequence[str | Path], folder: Path) -> dict[str, Taken]:
    """Of the parts that a program with MARKS measured, by name. Raises as `run` does."""
    output = _run(command, folder, None, subprocess.PIPE)[1]
    return {name: Taken(*values) for name, values in json.loads(output.strip().splitlines()[-1]).items()}


def _run(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None, output: int
) -> tuple[Taken, str]:
    begun, cpu_s = time.perf_counter(), _children_s()
    process = subprocess.Popen(
        list(map(str, command)),
        cwd=folder,
        env={**_environment(), **(environment or {})},
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
    )
    watch = _Watch(process.pid)
    said, errors = process.communicate()
    seconds = time.perf_counter() - begun
    peak_bytes = watch.stopped()
    if process.returncode:
        raise CommandError(f"exit code {process.returncode}: {errors.strip()[-2_000:]}")
    return Taken(seconds, _children_s() - cpu_s, peak_bytes), said or ""


def _environment() -> dict[str, str]:
    """Compiled modules are kept, as on a user's machine, whatever this environment says."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # os.times counts in hundredths of a second
    return used.ru_utime + used.ru_stime


class _Watch:
    """Looks at the memory of a process and its children until it is stopped."""

    def __init__(self, pid: int) -> None:
        self._pid, self._peak, self._over = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stopped(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak

    def _look(self) -> None:
        pause_s = _SHORTEST_PAUSE_S
        while not self._over.wait(pause_s):
            begun = time.thread_time()
            self._peak = max(self._peak, memory_of(self._pid))
            pause_s = max(_SHORTEST_PAUSE_S, (time.thread_time() - begun) / _READS_SHARE)


def memory_of(pid: int) -> int:
    """Bytes of a process and all it started: of one alone the most it had, of several what they have now."""
    pids = list(_tree(pid))
    if len(pids) == 1:
        return _field(Path(f"/proc/{pid}/status"), "VmHWM")
    return sum(_field(Path(f"/proc/{each}/smaps_rollup"), "Pss") for each in pids)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):  # it ended
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from _tree(int(child))


def _field(file: Path, name: str) -> int:
    """Bytes; 0 where the process ended meanwhile."""
    with suppress(OSError):
        for line in file.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0
