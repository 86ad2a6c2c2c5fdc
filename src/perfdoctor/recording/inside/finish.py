"""What is left to do when the steps are recorded? It is done in a process that the training does not wait for.

It waits until all ranks have written their files, completes the run folder, and lets `perfdoctor analyze` write the
report. It is nicer than the training, uses an eighth of the cores, and ends itself after its time limit.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import to_builtins

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.inside import report_process
from perfdoctor.recording.launch.program_run import Ended
from perfdoctor.recording.outcome import outcome
from perfdoctor.recording.record import kept_traces, of_rank
from perfdoctor.recording.tools.torch_profiler import StepWindow
from perfdoctor.system import tool_process
from perfdoctor.system.checkout import checkout
from perfdoctor.system.processors import JOBS
from perfdoctor.system.project import project_of
from perfdoctor.system.run_folder import RunFolder

PASS = "torch"  # noqa: S105 a pass of the run
#: A rank whose process has not even begun to record when rank 0 has ended may do so yet, but hardly.
_UNKNOWN_WAIT_S = 5.0
_LOOK_EVERY_S = 0.2
_NICER = 10
#: Whatever hangs is ended so much later than the limit.
_ALARM_GRACE_S = 4
#: Of the time limit: traces of many ranks take longer to compress than to read.
_COMPRESSING_SHARE = 1 / 5


def main() -> None:
    """Takes JSON: folder, world_size, steps, skip, wait_s, limit_s, log. Exits with 1, and one line why."""
    given = json.loads(sys.argv[1])
    if hasattr(os, "nice"):
        with contextlib.suppress(OSError):
            os.nice(_NICER)
    if hasattr(signal, "alarm"):
        signal.alarm(int(given["limit_s"]) + _ALARM_GRACE_S)
    until = time.monotonic() + given["limit_s"]
    try:
        folder = RunFolder.open(Path(given["folder"]))
        if folder is None:
            sys.exit(f"{given['folder']} holds no run. Record again.")
        late = _awaited(folder, given["world_size"], min(given["wait_s"], until - time.monotonic()))
        window = StepWindow(given["steps"], given["skip"])
        complete(folder, window, late, given["world_size"], _COMPRESSING_SHARE * given["limit_s"])
        analyse(folder.path, until, given["log"])
    except PerfdoctorError as error:
        sys.exit(f"{error.what}. {error.do}")
    with contextlib.suppress(OSError):  # what is printed goes there, and nothing was
        (Path(given["folder"]) / "report.log").unlink()


def _awaited(folder: RunFolder, world_size: int, wait_s: float) -> list[str]:
    """Wait at most `wait_s` until all ranks have ended their recordings; the names of those that have not."""
    begun = time.monotonic()
    while True:
        waited_s = time.monotonic() - begun
        written = {report.rank for report in folder.reports(PASS) if report.ended}
        claimed = {file.stem.removeprefix(f"{PASS}-") for file in folder.files("agents", f"{PASS}-*.json")}
        late = [f"rank{rank}" for rank in range(world_size) if rank not in written]
        if not late or waited_s > wait_s or (waited_s > _UNKNOWN_WAIT_S and not claimed & set(late)):
            return [name for name in late if name in claimed]
        time.sleep(_LOOK_EVERY_S)


def complete(
    folder: RunFolder, window: StepWindow, late: Sequence[str], world_size: int, compressing_s: float = math.inf,
    where: Path = Path(),
) -> None:  # fmt: skip
    """Name in the manifest what was recorded, and what could not be. Traces are compressed for `compressing_s`.

    `where`: the working folder of the program.
    """
    record = folder.manifest.passes[0]
    reports = [report for report in folder.reports(PASS) if report.ended]
    record.files = sorted({*record.files, *kept_traces(folder, PASS, compressing_s)})
    happened = outcome(reports, window, PASS, Ended())
    record.notes += happened.notes
    if late:
        record.notes.append(f"{', '.join(late)}: not written in time, and not in this report")
    elif len(reports) < world_size:
        record.notes.append(f"{len(reports)} of {world_size} ranks recorded into this folder")
    record.do = happened.do
    record.bytes = folder.bytes_on_disk()
    commit = checkout(where)
    folder.manifest.checkout = to_builtins(commit) if commit else {}
    folder.manifest.project = to_builtins(project_of(where, folder.manifest.command))
    folder.manifest.ranks = [of_rank(report) for report in reports if report.is_training]
    folder.write()


def analyse(folder: Path, until: float, log: Sequence[str]) -> None:
    """Write report.html and diagnosis.json, and log them. PerfdoctorError where not all of that succeeds in time.

    Where a tracker cannot take it, there still is a report.
    """
    try:
        _analyse(folder, until, log)
    except PerfdoctorError:
        if log and not (folder / "report.html").exists():
            _analyse(folder, until, ())
        raise


def _analyse(folder: Path, until: float, log: Sequence[str]) -> None:
    later = f"Try perfdoctor analyze {folder}"
    words = [str(folder), "--html", str(folder / "report.html"), "--json", str(folder / "diagnosis.json"), "--quiet"]
    code, output, _ = tool_process.run(
        [*tool_process.own_command("perfdoctor.cli.main"), "analyze", *words, *(f"--log={each}" for each in log)],
        environment={**os.environ, JOBS: str(report_process.cores())},
        timeout_s=max(until - time.monotonic(), 0.1),
        not_started=later,
        too_slow=PerfdoctorError("it took longer than its time limit", do=later),
        merged=True,
    )
    if code:
        said = " ".join(output.decode(errors="replace").split())[-500:]
        raise PerfdoctorError(f"{said or f'exit code {code}'}", do=later)
