"""How is a recorded command run again so that only the ends of its steps are timed?

No tool runs beside it, no stacks are sampled, and the agent in it opens no window: what is timed is the program as it
is. Long before it ends by itself it has made enough steps; then it gets SIGTERM, on which the agent writes what it has
timed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.launch import program
from perfdoctor.recording.launch import program_run as launch
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow
from perfdoctor.system.masking import MASK
from perfdoctor.system.paths import HOME, text_of
from perfdoctor.system.run_folder import Manifest, ProcessReport, RunFolder, TimedSteps, environment_again
from perfdoctor.system.trainings import longest, trainings

_PASS = "timed"  # noqa: S105 as reports call what timed them
#: Blocks of steps over a minute show how a machine's pace changes meanwhile; slow programs make a hundred steps.
_STEPPING_S, _STEPS = 60.0, 100
#: Its start may take longer than when it was recorded: files are read anew, the machine is busier.
_LONGER_START = 3.0
_RECORD_AGAIN = "Record it with perfdoctor run, and compare these runs."


class Rerunnable(Struct, frozen=True):
    """A recorded run that can be run again. `limit_s`: None where nobody knows how long its steps are."""

    name: str
    command: tuple[str, ...]
    folder: Path
    environment: dict[str, str]
    limit_s: float | None

    def is_same(self, other: Rerunnable) -> bool:
        """Would both run the same code with the same settings?"""
        return (self.command, self.folder, self.environment) == (other.command, other.folder, other.environment)


def rerunnable(name: str, path: Path) -> Rerunnable:
    """The run in a folder, to be run again. Raises PerfdoctorError where that is not possible."""
    run = RunFolder.open(path) if path.is_dir() else None
    if run is None or not run.manifest.command:
        raise PerfdoctorError(f"{name} cannot be run again: it is no folder of perfdoctor run", do=_RECORD_AGAIN)
    command = tuple(run.manifest.command)
    if any(MASK in word for word in command):
        raise PerfdoctorError(
            f"{name} cannot be run again: its command has secrets, which were not kept ({MASK})",
            do="Give them in the environment and record again; or compare runs that you made in turn, with "
            "--before A B C --after D E F.",
        )
    where = run.manifest.started_in
    folder = Path(where).expanduser() if where.startswith(HOME) else (path / where).resolve()
    if not where or not folder.is_dir():
        raise PerfdoctorError(
            f"{name} cannot be run again: the folder in which it was started is not "
            + ("there any more" if where else "known"),
            do=_RECORD_AGAIN,
        )
    reports = [report for record in run.manifest.passes for report in run.reports(record.name) if report.timed]
    environment = environment_again(run.manifest.environment, os.environ)
    return Rerunnable(name, command, folder, environment, _limit_s(longest_of(reports)))


def refuse_same(before: Rerunnable, after: Rerunnable) -> None:
    """Raise PerfdoctorError where both are one command in one folder: the code of BEFORE is no longer there."""
    if before.is_same(after):
        raise PerfdoctorError(
            f"{before.name} and {after.name} are the same command in the same folder: run again, both would run the "
            "code that is there now",
            do="Keep the code of before in a folder of its own (git worktree add ../before COMMIT), and record it "
            "there.",
        )


def longest_of(reports: Sequence[ProcessReport]) -> ProcessReport | None:
    """The first rank of the longest training among these."""
    found = trainings(reports)
    return longest(found).reports[0] if found else None


def _limit_s(report: ProcessReport | None) -> float | None:
    if report is None or report.timed is None:
        return None
    start_s = max(report.timed.start_unix_ns - report.started_unix_ns, 0) / 1e9 if report.started_unix_ns else 0.0
    step_s = float(np.median(report.timed.lengths_ns)) / 1e9
    return _LONGER_START * max(start_s, 10.0) + max(_STEPPING_S, _STEPS * step_s)


def again(run: Rerunnable) -> TimedSteps:
    """Run the program once more, without its output, and return the steps of its first rank. For the main thread.

    Raises PerfdoctorError where it fails or makes no steps, KeyboardInterrupt after Ctrl-C.
    """
    into = Path(tempfile.mkdtemp(prefix="perfdoctor-"))
    log = into / "output.log"
    (into / "agents").mkdir()
    recording = PassSettings(_PASS, into, "")
    environment = torch_profiler.environment(
        run.environment, recording, StepWindow(steps=0), reports=into / "agents", nccl=None
    )
    with torch_profiler.while_running(environment) as given, in_folder(run.folder), output_into(log):
        if (trouble := program.trouble(run.command[0])) is not None:
            raise PerfdoctorError(f"{run.name} cannot be run again: {trouble.what}", do=trouble.do)
        ended = launch.run(run.command, given, time_limit_s=run.limit_s)
    if ended.interrupted_by:
        shutil.rmtree(into, ignore_errors=True)
        raise KeyboardInterrupt
    if ended.code and not ended.timed_out:
        last = next((line.strip() for line in reversed(text_of(log).splitlines()) if line.strip()), "no output")
        raise PerfdoctorError(
            f"{run.name} failed when it was run again, with exit code {ended.code}: {last[:200]}",
            do=f"What it printed is in {log}",
        )
    report = longest_of(RunFolder(into, Manifest()).reports(_PASS))
    if report is None or report.timed is None:
        raise PerfdoctorError(
            f"{run.name} was run again, and no steps were timed"
            + (f" within {run.limit_s:.0f} s" if ended.timed_out else ""),
            do=f"What it printed is in {log}; perfdoctor run says what it lacks.",
        )
    shutil.rmtree(into, ignore_errors=True)
    return report.timed


@contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Work in this folder inside."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def output_into(log: Path) -> Iterator[None]:
    """Let what is started inside print into a file: standard output is ours."""
    kept = [os.dup(number) for number in (1, 2)]
    made = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for number in (1, 2):
            os.dup2(made, number)
        yield
    finally:
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)
        os.close(made)
