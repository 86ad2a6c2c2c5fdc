"""How is a program run once with treatments in it, and what does it report?

As `rerun.py` runs one: nothing is recorded but the ends of its steps. What it prints goes into a file. Its own files it
writes as ever: where is the user's choice (`Program.folder_copied`, and variables with `{trial}` in them).
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.launch import program_run as launch
from perfdoctor.recording.record import overstayed
from perfdoctor.recording.rerun import in_folder, longest_of, output_into
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow
from perfdoctor.system.masking import masked
from perfdoctor.system.paths import text_of
from perfdoctor.system.run_folder import RUNS, Manifest, ProcessReport, RunFolder

_PASS = "treated"  # noqa: S105 as reports call what timed them
_LOG = "output.log"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
#: A program that made no step for so many times its longest one, and so many seconds, hangs.
_STILL_TIMES, _STILL_S = 10.0, 5.0
_LONGEST_LINE = 160
#: Of a command: a system takes 2 MB of words.
_MOST_FILES = 256
_NO_MEMORY = ("out of memory", "OutOfMemoryError", "MemoryError", "Cannot allocate memory", "bad_alloc")


class TrialProgram(Struct, frozen=True):
    """What is run. `copies_folder`: each trial works in a copy of the working folder."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    copies_folder: bool = False
    #: Variables of each trial, with `{trial}` for its number.
    placeholders: Mapping[str, str] = field(default_factory=dict)


class TrialOrder(Struct, frozen=True):
    """One trial: `treatments` as the agent has them (name, file, values), and their variables.

    `end_after`: so many steps, 0: all. `nudge`: move the parameters by roundings. `bitwise`: sum them up at the end.
    `turns`: it takes turns with others, as the agent's turns.py has it.
    """

    number: int
    treatments: tuple[Mapping[str, Any], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    end_after: int = 0
    limit_s: float | None = None
    nudge: bool = False
    bitwise: bool = False
    turns: Mapping[str, Any] | None = None


class _Facts(Struct, frozen=True):
    touched: dict[str, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    losses: tuple[float | None, ...] = ()
    nudged: int = 0
    checksum: str = ""
    host_bytes: int = 0
    gpu_bytes: int = 0
    parameter_bytes: int = 0
    threads: int = 0
    handed: tuple[tuple[int, int], ...] = ()


class TrialReport(Struct, frozen=True):
    """What became of one trial. `why`: it failed; "" where its steps were timed. `code` as in a shell."""

    lengths_ns: tuple[int, ...] = ()
    why: str = ""
    code: int = 0
    is_cut: bool = False
    start_s: float = 0.0
    wall_s: float = 0.0
    others: float = 0.0
    ranks: int = 1
    #: Of the ranks, those on this machine.
    here: int = 1
    torch: str = ""
    touched: Mapping[str, int] = field(default_factory=dict)
    losses: tuple[float, ...] = ()
    #: So many parameters were moved by roundings.
    nudged: int = 0
    checksum: str = ""
    host_bytes: int = 0
    gpu_bytes: int = 0
    parameter_bytes: int = 0
    #: That torch uses for an op.
    threads: int = 0
    #: Of each of its turns but the first, by how many steps had ended before it: its first step, and that behind it.
    turns: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def run_trial(
    program: TrialProgram, order: TrialOrder, into: Path, is_to_end: Callable[[], bool] = lambda: False
) -> TrialReport:
    """Run the program once, with its output in `into`, a folder that is made. For the main thread.

    `is_to_end`: has whoever asked for it enough? It is as a time limit then. KeyboardInterrupt after Ctrl-C.
    """
    (into / "agents").mkdir(parents=True)
    log = into / _LOG
    treated = {
        "treatments": list(order.treatments), "end_after": order.end_after, "nudge": order.nudge,
        "bitwise": order.bitwise, "turns": order.turns,
    }  # fmt: skip
    placed = {name: value.replace("{trial}", str(order.number)) for name, value in program.placeholders.items()}
    environment = torch_profiler.environment(
        {**program.environment, **order.environment, **placed}, PassSettings(_PASS, into, ""), StepWindow(steps=0),
        reports=into / "agents", nccl=None, treated=treated,
    )  # fmt: skip
    load = Load()
    made, requested = RunFolder(into, Manifest()), False
    is_late = overstayed(made, _PASS)

    def is_finished() -> bool:
        nonlocal requested
        requested = requested or is_to_end()
        return requested or is_late()

    running = torch_profiler.while_running(environment)
    with running as given, working_folder(program) as folder, in_folder(folder), output_into(log):
        ended = launch.run(program.command, given, time_limit_s=order.limit_s, is_finished=is_finished)
    ended.timed_out |= requested
    if ended.interrupted_by:
        raise KeyboardInterrupt
    report = _report(made.reports(_PASS), ended, log)
    return msgspec.structs.replace(report, others=load.of_others(load.used_s()))


def read_trial(folder: Path) -> TrialReport | None:
    """What is left of a trial in its folder: its steps and what it computed; None where that is not one."""
    reports = RunFolder(folder, Manifest()).reports(_PASS) if (folder / "agents").is_dir() else []
    return _report(reports, launch.Ended(), folder / _LOG) if any(each.timed for each in reports) else None


def _report(reports: Sequence[ProcessReport], ended: launch.Ended, log: Path) -> TrialReport:
    first = longest_of(reports)
    timed = first.timed if first is not None else None
    facts = _facts(first)
    is_stopped = any(report.stopped for report in reports)
    why = _why(first, ended, log, is_stopped=is_stopped) or next(
        (f"{name} could not be applied: {error}" for name, error in facts.errors.items()), ""
    )
    start_s = 0.0
    if timed is not None and first is not None and first.started_unix_ns:
        start_s = max(timed.start_unix_ns - min(r.started_unix_ns for r in reports if r.started_unix_ns), 0) / 1e9
    return TrialReport(
        lengths_ns=_without_waits(timed.lengths_ns, facts.handed) if timed else (),
        why=masked(why)[:_LONGEST_LINE],
        code=0 if is_stopped else ended.code,
        is_cut=ended.timed_out,
        start_s=start_s,
        wall_s=ended.seconds,
        ranks=max((report.world_size or 1 for report in reports), default=1),
        here=max(sum(report.timed is not None for report in reports), 1),
        torch=first.torch if first else "",
        touched=facts.touched,
        losses=tuple(float("nan") if each is None else each for each in facts.losses),
        nudged=facts.nudged,
        checksum=facts.checksum,
        host_bytes=sum(_facts(report).host_bytes for report in reports),
        gpu_bytes=sum(_facts(report).gpu_bytes for report in reports),
        parameter_bytes=facts.parameter_bytes,
        threads=facts.threads,
        turns=_turns(len(timed.lengths_ns), facts.handed) if timed else {},
    )


def _without_waits(lengths_ns: Sequence[int], handed: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The steps without the time in which others had their turns, at the begin of the first step of each turn."""
    lengths = list(lengths_ns)
    for count, waited_ns in handed:
        if count <= len(lengths):
            lengths[count - 1] = max(lengths[count - 1] - waited_ns, 1)
    return tuple(lengths)


def _turns(steps: int, handed: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Where the steps of each turn but the first lie among so many lengths, the first of which ends with step 2."""
    begins = [count for count, _ in handed if count <= steps]
    ends = [*(count - 1 for count in begins[1:]), steps]
    return {count: (count - 1, end) for count, end in zip(begins, ends, strict=False)}


def _facts(report: ProcessReport | None) -> _Facts:
    try:
        return msgspec.convert(report.treated if report else {}, _Facts)
    except (msgspec.ValidationError, UnicodeEncodeError):  # damaged
        return _Facts()


def _why(report: ProcessReport | None, ended: launch.Ended, log: Path, *, is_stopped: bool) -> str:
    """Why the trial failed; "" where it did not."""
    text = text_of(log)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed nothing"
    if not ended.was_started:
        return "; ".join(ended.notes)
    if ended.timed_out:
        return _why_cut(report, ended)
    if ended.code and not is_stopped:
        if any(each in text for each in _NO_MEMORY):
            return f"out of memory: {next(line for line in lines if any(each in line for each in _NO_MEMORY))}"
        if ended.signal:
            return f"ended by {_signal(ended.signal)}: {last}"
        return f"exit code {ended.code}: {last}"
    if report is None or report.timed is None:
        return f"no steps were timed: {last}"
    return ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _why_cut(report: ProcessReport | None, ended: launch.Ended) -> str:
    """Why it was at its time limit: "" where it was still making steps."""
    if report is None or report.timed is None:
        return f"hangs, or is far slower: no step was reported within {ended.seconds:.0f} s"
    lengths = report.timed.lengths_ns
    silent_s = (report.reported_unix_ns - report.timed.start_unix_ns - sum(lengths)) / 1e9
    longest_s = max(_without_waits(lengths, _facts(report).handed)) / 1e9
    if silent_s > _STILL_S and silent_s > _STILL_TIMES * longest_s:
        return f"hangs: no step for {silent_s:.0f} s behind step {len(lengths) + 1}"
    return ""


@contextmanager
def working_folder(program: TrialProgram) -> Iterator[Path]:
    """Yield the working folder, or a copy of it that is removed again; on file systems that can, a copy on write.

    It lies beside the folder, where its `../` is the same and its files may share their blocks; if nothing can be
    written there, in the temporary folder.
    """
    if not program.copies_folder:
        yield program.folder
        return
    try:
        made = Path(tempfile.mkdtemp(prefix=".perfdoctor-treat-", dir=program.folder.parent))
    except OSError:
        made = Path(tempfile.mkdtemp(prefix="perfdoctor-treat-"))
    try:
        _copy(program.folder, made)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _copy(folder: Path, into: Path) -> None:
    """Copy what is in a folder, but for recordings of ours. Raises PerfdoctorError."""
    said = ""
    try:
        files = [str(each) for each in folder.iterdir() if each.name != RUNS]
        shutil.copystat(folder, into)
        for number in range(0, len(files), _MOST_FILES):
            command = ["cp", "-a", "--reflink=auto", "-t", str(into), *files[number : number + _MOST_FILES]]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["cp failed"])[-1]
                break
    except OSError as error:
        said = str(error)
    if said:
        raise PerfdoctorError(f"the working folder cannot be copied: {said}", do="Make room, or leave --cwd-copy out.")


class Load:
    """How busy the machine is from now on."""

    def __init__(self) -> None:
        self.begun, self._busy_before_s, self._used_before_s = time.monotonic(), _busy_s(), _used_s()

    def used_s(self) -> float:
        """Seconds of processor time that this process and its children that have ended used since."""
        return _used_s() - self._used_before_s

    def of_others(self, used_s: float) -> float:
        """Cores that were busy since with other programs than those that used so many seconds."""
        elapsed_s = max(time.monotonic() - self.begun, _TICK_S)
        return max((_busy_s() - self._busy_before_s - used_s) / elapsed_s, 0.0)


def _busy_s() -> float:
    """Seconds that programs have used of all cores."""
    user, nice, system = text_of("/proc/stat").split("\n", 1)[0].split()[1:4]
    return (int(user) + int(nice) + int(system)) * _TICK_S


def _used_s() -> float:
    """Seconds that this process and its children that have ended used."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in each)


def machine_facts() -> dict[str, Any]:
    """What trials depend on: cores that may be used, NUMA nodes, bfloat16 of the processor, a compiler."""
    flags = next((line for line in text_of("/proc/cpuinfo").splitlines() if line.startswith("flags")), "")
    nodes = Path("/sys/devices/system/node")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "numa": len(list(nodes.glob("node[0-9]*"))) if nodes.is_dir() else 1,
        "bf16": any(name in flags.split() for name in ("avx512_bf16", "amx_bf16")),
        "processor": _processor_name(),
        "compiler": any(shutil.which(os.environ.get("CXX", name)) for name in ("g++", "c++", "clang++")),
    }


def _processor_name() -> str:
    names = [line.partition(":")[2].strip() for line in text_of("/proc/cpuinfo").splitlines() if "model name" in line]
    return names[0] if names else ""
