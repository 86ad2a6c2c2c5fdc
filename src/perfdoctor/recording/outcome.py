"""What happened to the program, as far as it limits the recording, and what can the user do if nothing was recorded?"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from perfdoctor.recording.launch.program_run import Ended
from perfdoctor.recording.tools.torch_profiler import StepWindow
from perfdoctor.system.run_folder import ProcessReport
from perfdoctor.system.trainings import trainings

#: With fewer steps nothing can be said about how they differ.
_FEWEST_STEPS = 3
_OWN_ERROR = "The program's own last lines say why it ended."
_LET_IT_RUN = "Let it run until its steps are recorded."
_FROM_OUTSIDE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: What recording is tried with each night (scripts/try-torch-versions).
TRIED = "torch 2.4 to 2.15 and Python 3.10 to 3.14"
_NOT_TRIED = f"The program ran without it. Recording is tried with {TRIED}: report this line, with your versions."
#: How the agent's notes begin if it could not go on.
_AGENT = "perfdoctor's agent "
_OWN_PROFILER = (
    "Only one profiler can run: switch the program's own off, or let it write its trace (on_trace_ready="
    "torch.profiler.tensorboard_trace_handler(DIR)), and perfdoctor diagnoses that."
)


class PassOutcome(Struct, frozen=True):
    """`notes` are for the user; `do` is what to do if no step was recorded, else ""."""

    notes: tuple[str, ...] = ()
    do: str = ""


def outcome(reports: Sequence[ProcessReport], window: StepWindow, tool: str, ended: Ended) -> PassOutcome:
    """The outcome of a pass, by the reports of its processes and by how its program `ended`; `tool` is the pass."""
    if not ended.was_started:  # the notes of the launch say why
        return PassOutcome(do="Check the command: the system could not start it.")
    training = [report for report in reports if report.is_training]
    if not training:
        return _without_steps(reports, ended)
    notes = [
        f"{who}{note}"
        for report, who in zip(training, _names(training), strict=True)
        for note in (*_of_profilers(report), *_of_end(report, window, tool, ended))
    ]
    # Where others trained, a Python without torch that the agent could not enter is no loss.
    notes += [note for report in reports if report not in training and report.torch for note in _failures(report)]
    has_some = any(report.steps_recorded or report.trace for report in training)
    do = "" if has_some else _do(max(training, key=lambda report: report.steps_seen), ended)
    return PassOutcome(tuple(dict.fromkeys(notes)), do)


def _failures(report: ProcessReport) -> list[str]:
    """The notes that say why the agent of this process ended early; empty if it did not."""
    return [note for note in report.notes if note.startswith(_AGENT)]


def _without_steps(reports: Sequence[ProcessReport], ended: Ended) -> PassOutcome:
    """The outcome of a pass in which no process trained."""
    if failures := [note for report in reports for note in _failures(report)]:
        return PassOutcome(tuple(dict.fromkeys(failures)), _NOT_TRIED)
    when = "before its first step" if reports else "before it imported torch"
    if ended.timed_out:
        return PassOutcome(("no step was seen until then",), "Give it more time with --timeout.")
    if ended.interrupted_by:
        name = signal.Signals(ended.interrupted_by).name
        return PassOutcome((f"{name} came {when}",), _LET_IT_RUN)
    if ended.signal:
        try:
            name = signal.Signals(ended.signal).name
        except ValueError:  # a real-time signal
            name = f"signal {ended.signal}"
        return PassOutcome((f"the program was ended by {name} {when}",), _killed(ended))
    if ended.code:
        return PassOutcome((f"the program ended with code {ended.code} {when}",), _OWN_ERROR)
    if not reports:
        return PassOutcome(
            ("no Python that perfdoctor's agent could enter imported torch: no steps and no ops were recorded",),
            "If the command starts the training elsewhere (docker, ssh, sbatch), put perfdoctor run there.",
        )
    return PassOutcome(
        (
            "torch was imported, but no step was seen: no optimizer made an update, and no module ran forward"
            + ("" if all(report.ended for report in reports) else " before the program was killed"),
        ),
        "Record a command that trains or runs a model: updates and forward passes are its steps.",
    )


def _killed(ended: Ended) -> str:
    """What the user can do about a program that failed or was ended by a signal."""
    if ended.signal == signal.SIGKILL:
        return "perfdoctor did not send it: see in the kernel's log (dmesg) whether memory ran out."
    return _LET_IT_RUN if ended.signal in _FROM_OUTSIDE else _OWN_ERROR


def _of_profilers(report: ProcessReport) -> Iterator[str]:
    """Yield the agent's notes, or which trace is diagnosed if the program recorded its own."""
    if report.trace.startswith("own-") and report.own_traces:
        several = f", the last of {len(report.own_traces)}" if len(report.own_traces) > 1 else ""
        yield (
            "the program records itself with torch.profiler: its own trace "
            f"({Path(report.own_traces[-1]).name}{several}) is diagnosed"
        )
    elif report.steps_recorded or report.trace:
        yield from report.notes
    else:  # first why nothing was recorded, then what is not certain about the steps
        yield from sorted(report.notes, key=lambda note: "own torch.profiler" not in note)


def _of_end(report: ProcessReport, window: StepWindow, tool: str, ended: Ended) -> Iterator[str]:
    """Yield a note where the process ended before all steps were recorded."""
    seen, recorded = report.steps_seen, report.steps_recorded
    with_code = f"ended with code {ended.code}" if ended.code and not ended.signal else "ended"
    if report.state == "recording":
        lost = "what torch.profiler held is lost" if tool == "torch" else "its ops are lost"
        yield f"killed while it was recorded: {lost}"
    elif report.state == "watching" and not report.ended:
        yield f"killed before the recorded steps began (the first {window.skip} are skipped)"
    elif report.state == "watching" and seen < window.skip + 2:
        yield f"{with_code} after {seen} step{'s' * (seen != 1)}, of which the first {window.skip} are skipped"
    elif report.state != "watching" and recorded < window.steps and not report.stopped:
        doubt = ": too few to know how steps differ" if recorded < _FEWEST_STEPS else ""
        yield f"{with_code} after {recorded} of {window.steps} recorded steps{doubt}"


def _do(report: ProcessReport, ended: Ended) -> str:
    """What the user can do where this process trained and nothing was recorded."""
    if report.state == "recording" and ended.signal in (0, signal.SIGKILL):
        return "Let it end by itself, or with SIGTERM or Ctrl-C: then what was recorded is kept."
    if _failures(report):
        return _NOT_TRIED
    if any("own torch.profiler" in note for note in report.notes):
        return _OWN_PROFILER
    if ended.code or ended.signal:
        return _killed(ended)
    if report.steps_seen < 2:
        return "Let it make more steps: the first one is never recorded."
    return f"Record the few that it makes: perfdoctor run --skip-steps 1 --steps {report.steps_seen - 1} -- …"


def _names(reports: Sequence[ProcessReport]) -> list[str]:
    """Prefix that names each process: "" if it is the only one, else its number among trainings and its rank."""
    if len(reports) == 1:
        return [""]
    found, names = trainings(reports), {}
    for training in found:
        for report in training.reports:
            process = [f"process {training.number}"] if len(found) > 1 else []
            rank = [f"rank {report.rank}"] if len(training.reports) > 1 else []
            names[report.pid] = ", ".join(process + rank) + ": "
    return [names[report.pid] for report in reports]
