"""How busy were the processor's cores during a recording, and with whom? Sampled from /proc, on Linux only.

The sampler is a thread of perfdoctor's own process: nothing of it runs in the training. It reads counters as the
kernel keeps them; the reader takes differences. What it costs is limited: after each sample it waits so much
longer than the sample took that it uses at most half a per cent of one core.

A value that this kernel or container does not show stays empty, and means unknown. Sources: proc(5) for /proc/stat and
/proc/PID/task/TID/stat, the kernel's Documentation/scheduler/sched-stats.rst for schedstat, accounting/psi.rst for
/proc/pressure/cpu, admin-guide/cgroup-v2.rst for cpu.stat.
"""

from __future__ import annotations

import csv
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from msgspec import Struct, field

from perfdoctor.system.paths import text_of
from perfdoctor.system.processors import own_groups, quota_cores

COLUMNS = (
    "unix_ns", "cores", "allowed_cores", "busy_ns", "idle_ns", "steal_ns", "runnable", "pressure_ns", "throttled_ns",
    "program_processes", "program_threads", "program_runnable", "program_cpu_ns", "program_delay_ns",
    "recorder_cpu_ns",
)  # fmt: skip

_SECOND_NS = 1_000_000_000
#: A sample may cost this share of the time until the next one.
_MOST_COST = 0.005
_JOIN_TIMEOUT_S = 2.0
# Places in a line of /proc/stat: user nice system idle iowait irq softirq steal. A guest's time is part of user's.
_BUSY, _IDLE, _STEAL = (0, 1, 2, 5, 6), (3, 4), (7,)
# Places behind the name in /proc/PID/task/TID/stat.
_STATE, _USER_TICKS, _SYSTEM_TICKS = 0, 11, 12
_PROC = Path("/proc")


class CpuSampler:
    """Writes one row a tick into the CSV file `target` until it is stopped.

    `follow` says which process is the program: it and its descendants are sampled as the program, this process and its
    other descendants as the recorder. Rows are written as soon as they are complete. Nothing is raised.
    """

    def __init__(self, target: Path, hertz: float = 10.0) -> None:
        self._target = target
        self._period_s = 1 / hertz
        self._rows = 0
        self._program = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Begin to sample. Returns "", or the reason why it cannot; then no file is written."""
        if _machine(_allowed_cpus()) is None:
            return "/proc/stat cannot be read"
        try:
            file = self._target.open("w", newline="", encoding="utf-8", buffering=1)
        except OSError as error:
            return f"{self._target.name} cannot be written: {error.strerror or error}"
        self._thread = threading.Thread(target=self._sample, args=(file,), name="perfdoctor-cpu", daemon=True)
        self._thread.start()
        return ""

    def follow(self, program: int) -> None:
        """Take this process and its descendants for the program from now on."""
        self._program = program

    def stop(self) -> int:
        """End sampling, and return the number of rows written. May be called again, and never raises."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_JOIN_TIMEOUT_S)
        return self._rows

    def _sample(self, file: TextIO) -> None:
        used = _Used()
        try:
            with file:
                rows = csv.writer(file, lineterminator="\n")
                rows.writerow(COLUMNS)
                wait_s = 0.0
                while not self._stopping.wait(wait_s):
                    wait_s = max(self._period_s, self._row(rows.writerow, used) / _MOST_COST)
                self._row(rows.writerow, used)
        except OSError:  # no space: what was written is kept
            return

    def _row(self, write: Callable[[list[object]], object], used: _Used) -> float:
        """Take a sample; returns the CPU time that it took, in s."""
        begun = time.thread_time()
        values: dict[str, object] = {"unix_ns": time.time_ns()}
        values |= _machine(_allowed_cpus()) or {}
        values |= used.sample(self._program)
        write([values.get(column, "") for column in COLUMNS])
        self._rows += 1
        return time.thread_time() - begun


class _Used(Struct):
    """Ns that threads have used so far, also those that have ended, by group, from when they were first seen."""

    totals_ns: Counter[str] = field(default_factory=Counter)
    last: dict[int, tuple[int, int]] = field(default_factory=dict)

    def sample(self, program: int) -> dict[str, object]:
        """The columns of `program` and of this process, the recorder. A new thread counts from its begin."""
        own = list(_threads_below(os.getpid(), but=program))
        of_program = list(_threads_below(program)) if program else []
        for group, threads in (("recorder", own), ("program", of_program)):
            for each in threads:
                cpu_ns, delay_ns = self.last.get(each.thread, (0, 0))
                self.totals_ns[f"{group}_cpu_ns"] += max(each.cpu_ns - cpu_ns, 0)
                self.totals_ns[f"{group}_delay_ns"] += max(each.delay_ns - delay_ns, 0)
        self.last = {each.thread: (each.cpu_ns, each.delay_ns) for each in (*own, *of_program)}
        if not of_program:
            return {"recorder_cpu_ns": self.totals_ns["recorder_cpu_ns"]}
        return {
            **self.totals_ns,
            "program_processes": len({each.process for each in of_program}),
            "program_threads": len(of_program),
            "program_runnable": sum(each.state == "R" for each in of_program),
        }


class _ThreadTime(Struct, frozen=True):
    """`delay_ns`: how long it has waited for a core, ready to run."""

    process: int
    thread: int
    state: str
    cpu_ns: int
    delay_ns: int


def _threads_below(process: int, but: int = 0) -> Iterator[_ThreadTime]:
    """The threads of a process and its descendants, without those of `but` and its descendants."""
    left = [process]
    while left:
        each = left.pop()
        for thread in _names(_PROC / str(each) / "task"):
            folder = f"{_PROC}/{each}/task/{thread}"
            left += [int(child) for child in text_of(f"{folder}/children").split() if int(child) != but]
            if (found := _thread(each, int(thread), folder)) is not None:
                yield found


def _thread(process: int, thread: int, folder: str) -> _ThreadTime | None:
    stat = text_of(f"{folder}/stat").rpartition(")")[2].split()
    if len(stat) <= _SYSTEM_TICKS:  # it has ended
        return None
    scheduled = text_of(f"{folder}/schedstat").split()
    if len(scheduled) > 1:
        return _ThreadTime(process, thread, stat[_STATE], int(scheduled[0]), int(scheduled[1]))
    ticks = int(stat[_USER_TICKS]) + int(stat[_SYSTEM_TICKS])
    return _ThreadTime(process, thread, stat[_STATE], ticks * _tick_ns(), 0)


def _machine(allowed: frozenset[int]) -> dict[str, object] | None:
    """What all processes together used of the allowed cores; None where /proc/stat shows no cores."""
    lines = text_of(f"{_PROC}/stat").splitlines()
    cores = {int(line.split()[0][3:]): line.split()[1:] for line in lines if line[:3] == "cpu" and line[3:4].isdigit()}
    ours = [[int(value) for value in values] for core, values in cores.items() if core in allowed]
    if not ours:
        return None

    def counted_ns(*places: int) -> int:
        return sum(core[place] for core in ours for place in places if place < len(core)) * _tick_ns()

    found: dict[str, object] = {
        "cores": len(cores), "allowed_cores": min(float(len(ours)), quota_cores()), "busy_ns": counted_ns(*_BUSY),
        "idle_ns": counted_ns(*_IDLE), "steal_ns": counted_ns(*_STEAL), "pressure_ns": _pressure_ns(),
        "throttled_ns": _throttled_ns(),
    }  # fmt: skip
    running = next((line.split()[1] for line in lines if line.startswith("procs_running ")), "")
    return found | {"runnable": max(int(running) - 1, 0) if running else ""}  # the one that reads is no other's


def _pressure_ns() -> int | str:
    """How long at least one thread of the machine has waited for a core."""
    for line in text_of(f"{_PROC}/pressure/cpu").splitlines():
        if line.startswith("some "):
            return int(line.rpartition("total=")[2]) * 1000
    return ""


def _throttled_ns() -> int | str:
    """How long the control groups have held back threads because the quota was used up."""
    found = [line.split() for folder in own_groups() for line in text_of(folder / "cpu.stat").splitlines()]
    scales = {"throttled_usec": 1000, "throttled_time": 1}
    times = [int(line[1]) * scales[line[0]] for line in found if len(line) == 2 and line[0] in scales]
    return max(times) if times else ""


def _allowed_cpus() -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux
        return frozenset()


def _tick_ns() -> int:
    return _SECOND_NS // os.sysconf("SC_CLK_TCK")


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 a Path an entry would be slow
    except OSError:
        return []
