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
from collections.abc import Callable, Iterator, Sequence
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
# Interrupts serve devices, and are no program's.
_BUSY, _IDLE, _STEAL = (0, 1, 2), (3, 4), (7,)
# Places behind the name in /proc/PID/stat, and in that of a thread. `_TICKS`: of the process with all threads that it
# had, and of all children that it has waited for, with theirs.
_STATE, _USER_TICKS, _SYSTEM_TICKS, _BEGAN = 0, 11, 12, 19
_TICKS = (11, 12, 13, 14)
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


class _Used:
    """What the program and the recorder have used so far, from when they were first seen."""

    def __init__(self) -> None:
        self._recorder, self._programs = _Group(), [_Group()]
        self._program = 0

    def sample(self, program: int) -> dict[str, object]:
        """The columns of `program` and of this process, the recorder; none where it is not known who began whom."""
        if not Path(f"{_PROC}/self/task/{threading.get_native_id()}/children").exists():
            return {}  # a kernel without CONFIG_PROC_CHILDREN: children would count as other programs
        if program != self._program:  # the next pass: what the one before used stays counted
            self._program = program
            self._programs.append(_Group())
        self._recorder.add(os.getpid(), but=program)
        threads = self._programs[-1].add(program) if program else []
        found: dict[str, object] = {"recorder_cpu_ns": self._recorder.cpu_ns}
        if not threads:
            return found
        return found | {
            "program_cpu_ns": sum(each.whole_ns for each in self._programs),
            "program_delay_ns": sum(each.delay_ns for each in self._programs),
            "program_processes": len({each.process for each in threads}),
            "program_threads": len(threads),
            "program_runnable": sum(each.state == "R" for each in threads),
        }


class _Group(Struct):
    """A process, all that it began, and all that those began. A daemon whose parent has ended still belongs to it.

    `cpu_ns` and `delay_ns`: of threads, up to when each was last seen. `whole_ns`: the time on a core also of threads
    and processes that came and went between two samples, as the kernel adds it to the process that waited for them; in
    ticks, and so the larger of the two is nearer to the truth.
    """

    cpu_ns: int = 0
    delay_ns: int = 0
    whole_ns: int = 0
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    began: dict[int, str] = field(default_factory=dict)

    def add(self, root: int, but: int = 0) -> list[ThreadTime]:
        """Count what was used since the last time, without `but` and all below it. Returns the threads there are."""
        below = _processes_below([root, *self.began], but)
        # A number may have been given to another process since.
        processes = {each: stat for each, stat in below.items() if self.began.get(each, stat[_BEGAN]) == stat[_BEGAN]}
        self.began = {each: stat[_BEGAN] for each, stat in processes.items()}
        threads = [thread for each in processes for thread in threads_of(each)]
        for each in threads:
            cpu_ns, delay_ns = self.last.get(each.thread, (0, 0))
            self.cpu_ns += max(each.cpu_ns - cpu_ns, 0)
            self.delay_ns += max(each.delay_ns - delay_ns, 0)
        self.last = {each.thread: (each.cpu_ns, each.delay_ns) for each in threads}
        ticks = sum(int(stat[place]) for stat in processes.values() for place in _TICKS)
        self.whole_ns = max(self.whole_ns, self.cpu_ns, ticks * _tick_ns())
        return threads


class ThreadTime(Struct, frozen=True):
    """`delay_ns`: how long it has waited for a core, ready to run."""

    process: int
    thread: int
    state: str
    cpu_ns: int
    delay_ns: int


def _processes_below(roots: Sequence[int], but: int) -> dict[int, list[str]]:
    """The numbers of /proc/PID/stat of these processes and their descendants, without `but` and its descendants."""
    left, found = [*roots], dict[int, list[str]]()
    while left:
        each = left.pop()
        stat = [] if each in found or each == but else _numbers(f"{_PROC}/{each}/stat")
        if len(stat) > _BEGAN:
            found[each] = stat
            for thread in _names(_PROC / str(each) / "task"):
                left += [int(child) for child in text_of(f"{_PROC}/{each}/task/{thread}/children").split()]
    return found


def threads_of(process: int) -> Iterator[ThreadTime]:
    for thread in _names(_PROC / str(process) / "task"):
        folder = f"{_PROC}/{process}/task/{thread}"
        stat = _numbers(f"{folder}/stat")
        if len(stat) <= _SYSTEM_TICKS:  # it has ended
            continue
        scheduled = text_of(f"{folder}/schedstat").split()
        if len(scheduled) > 1:
            yield ThreadTime(process, int(thread), stat[_STATE], int(scheduled[0]), int(scheduled[1]))
        else:
            ticks = int(stat[_USER_TICKS]) + int(stat[_SYSTEM_TICKS])
            yield ThreadTime(process, int(thread), stat[_STATE], ticks * _tick_ns(), 0)


def _numbers(file: str) -> list[str]:
    """What stands behind the name in a file `stat` of a process or thread; [] where it has ended."""
    return text_of(file).rpartition(")")[2].split()


def _machine(allowed: frozenset[int]) -> dict[str, object] | None:
    """What all processes together used of the allowed cores; None where /proc/stat shows no cores."""
    lines = text_of(f"{_PROC}/stat").splitlines()
    cores = {
        int(line.split()[0][3:]): line.split()[1:] for line in lines if line[:3] == "cpu" and line[3:4].isdecimal()
    }
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
