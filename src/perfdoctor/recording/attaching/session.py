"""What is recorded by one `perfdoctor attach`, from the first process to a run folder that can be diagnosed?

As in `perfdoctor run`: the agents' windows, stacks sampled from outside, the cores and the GPUs.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from perfdoctor import __version__
from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.attaching.attachment import PASS, Attached, Attachment, is_without_step
from perfdoctor.recording.attaching.target import Target
from perfdoctor.recording.inside.finish import complete
from perfdoctor.recording.record import remove_agreed
from perfdoctor.recording.sampling.session import SamplerProcess
from perfdoctor.recording.tools import py_spy, torch_profiler
from perfdoctor.recording.tools.cpu import CpuSampler
from perfdoctor.recording.tools.nvml import DeviceSampler, keep_topology
from perfdoctor.recording.tools.torch_profiler import StepWindow
from perfdoctor.system.checkout import checkout
from perfdoctor.system.masking import masked_command
from perfdoctor.system.project import project_of
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder, recorded_environment, started_in

#: An interpreter that runs Python comes to our words at once. One that waits, or works in C, comes when it is back.
ANSWER_S = 30.0
#: A step of a training seldom takes longer.
_PATIENCE_S = 60.0
_LEFT_OUT = "left out"
_LET_IT_TRAIN = "Attach while it trains, or give it more time: --timeout SECONDS."


class Outcome(Struct, frozen=True):
    """`attached`: how many processes an agent was in. `why`: nothing was recorded; None where something was."""

    attached: int
    why: PerfdoctorError | None = None


def new_folder(where: Path, targets: Sequence[Target]) -> RunFolder:
    """The run folder of these processes. Raises PerfdoctorError where it cannot be made."""
    first = targets[0]
    commit = checkout(first.folder)
    command = [word[:200] for word in masked_command(first.command[:40])]
    manifest = Manifest(
        perfdoctor=__version__, command=command, environment=recorded_environment(first.environment),
        started_unix_ns=time.time_ns(), passes=[PassRecord(PASS, first.torch, command, started_unix_ns=time.time_ns())],
        checkout=to_builtins(commit) if commit else {}, project=to_builtins(project_of(first.folder, command)),
        started_in=started_in(where),
    )  # fmt: skip
    return RunFolder.create(where, manifest)


def record(
    folder: RunFolder, targets: Sequence[Target], window: StepWindow, limit_s: float, notify: Callable[[str], None]
) -> Outcome:
    """Record a window of these processes into the folder. Ctrl-C ends it early, and what was recorded is kept."""
    until = time.monotonic() + limit_s
    with _sampled(folder, targets, window, notify) as sampling:
        settings = torch_profiler.settings(
            torch_profiler.PassSettings(PASS, folder.make(PASS), "cpu+cuda"), window,
            reports=folder.path / "agents", sampling=sampling,
        )  # fmt: skip
        attachment = Attachment(folder, {**settings, "marked": False})
        try:
            why = _attach(attachment, targets, limit_s, notify)
            attachment.wait(until, _Notices(notify))
        except KeyboardInterrupt:
            why = PerfdoctorError("it was interrupted before its steps were recorded", do="Let it record.")
            notify("interrupted: the agents leave, and what was recorded is kept")
        finally:
            attachment.close()
    remove_agreed(folder, PASS)
    record = folder.manifest.passes[0]
    record.state, record.seconds = "done", round((time.time_ns() - record.started_unix_ns) / 1e9, 3)
    complete(folder, window, (), len(attachment.attached), where=targets[0].folder)
    reports = folder.reports(PASS)
    if any(report.trace for report in reports):
        return Outcome(len(attachment.attached))
    return Outcome(len(attachment.attached), why or _nothing(attachment, limit_s))


def _attach(
    attachment: Attachment, targets: Sequence[Target], limit_s: float, notify: Callable[[str], None]
) -> PerfdoctorError | None:
    """Bring agents into all of them; why the last one that failed did."""
    why = None
    for target in targets:
        try:
            done = attachment.attach(target)
        except PerfdoctorError as error:
            why = error
            notify(f"process {target.pid} was not attached to: {error.what}. {error.do}")
            continue
        stopped_ms = 1e3 * done.injection.stopped_s
        stood_still = f": it stood still for {stopped_ms:.1f} ms" if stopped_ms else ""
        notify(f"attached to process {target.pid} by {done.injection.way}{stood_still}")
    said_of = partial(_said_of, notify)
    for late in attachment.await_begin(min(ANSWER_S, limit_s), said_of):
        silent = f"ran no Python for {min(ANSWER_S, limit_s):.0f} s: it waits, or is busy in C"
        why = (
            PerfdoctorError(
                f"the main thread of process {late.target.pid} {silent}",
                do="Nothing was done there, and nothing will be. Attach again when it goes on.",
            )
            if late.is_alive
            else PerfdoctorError(f"process {late.target.pid} ended before a step", do="Nothing was done there.")
        )
        notify(f"{why.what}. {why.do}")
    return why


def _said_of(notify: Callable[[str], None], attached: Attached, said: str) -> None:
    notify(f"process {attached.target.pid}: {said}")


def _nothing(attachment: Attachment, limit_s: float) -> PerfdoctorError:
    """Why no agent recorded anything."""
    awaited = [each for each in attachment.attached if not each.is_left_out]
    known = {each.target.pid: each.facts() for each in awaited}
    facts = list(known.values())
    notes = [str(note) for each in facts for note in each.get("notes", ())]
    if any(each.get("state") == "failed" for each in facts) or any("own torch.profiler" in each for each in notes):
        said = "; ".join(dict.fromkeys(notes)) or "the program ended before a step was recorded whole"
        return PerfdoctorError(said, do="Record from the start: perfdoctor run -- COMMAND")
    if facts and all(each.get("state") == "worker" for each in facts):
        return PerfdoctorError("it is a worker of a loader, and does not train", do="Give the process that started it.")
    if any(not each.is_alive for each in awaited):
        return PerfdoctorError("the program ended before its steps were recorded", do="Attach to one that goes on.")
    silent = [pid for pid, each in known.items() if not each]
    if silent:
        return PerfdoctorError(
            f"the agent in {_named(silent)} reported nothing in {limit_s:.0f} s: torch is still being imported there, "
            f"or it cannot write into {attachment.folder.path}",
            do="Attach once it trains, and choose a folder that it can write to: -o.",
        )
    unended = [pid for pid, each in known.items() if each.get("state") == "recording"]
    if unended:
        return PerfdoctorError(
            f"{_named(unended)} had not ended the recorded step under way after {limit_s:.0f} s, and was left",
            do="Give it more time: --timeout SECONDS. Its recording there ends with that step.",
        )
    idle = [pid for pid, each in known.items() if is_without_step(each)]
    if idle and len(idle) < len(known):
        return PerfdoctorError(
            f"{_named(idle)} made no step in {limit_s:.0f} s, and the others waited for that",
            do="Attach to one that trains: perfdoctor attach PID, without --children.",
        )
    seen = max((each.get("steps_seen", 0) for each in facts), default=0)
    return PerfdoctorError(f"{seen} steps were seen in {limit_s:.0f} s, and none was recorded", do=_LET_IT_TRAIN)


def _named(pids: Sequence[int]) -> str:
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"


class _Notices:
    """Says once what changed in a process."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self.notify, self.said = notify, set[tuple[int, str]]()
        self.begun = time.monotonic()

    def __call__(self, attached: Attached, facts: dict[str, Any]) -> None:
        if not is_without_step(facts):
            self.begun = math.inf
        elif time.monotonic() - self.begun > _PATIENCE_S:
            self.begun = math.inf
            self.notify("no step has ended so far. Ctrl-C: leave, and see what can be seen from outside")
        said = attached.target.pid, _LEFT_OUT if attached.is_left_out else str(facts.get("state", ""))
        if said in self.said or said[1] not in ("recording", "written", _LEFT_OUT):
            return
        self.said.add(said)
        if attached.is_left_out:
            self.notify(f"process {said[0]} has made no step and is left out")
            return
        rank = f" (rank {facts['rank']})" if (facts.get("world_size") or 1) > 1 else ""
        steps = facts.get("steps_recorded", 0)
        what = "its steps are recorded from now on" if said[1] == "recording" else f"{steps} steps are recorded"
        self.notify(f"process {said[0]}{rank}: {what}")


@contextlib.contextmanager
def _sampled(
    folder: RunFolder, targets: Sequence[Target], window: StepWindow, notify: Callable[[str], None]
) -> Iterator[dict[str, object] | None]:
    """Sample cores, GPUs and, when agents ask for it, stacks. Yields the settings of the agents' sampling."""
    record = folder.manifest.passes[0]
    place = folder.make("device")
    devices, cores = DeviceSampler(place / "samples.csv"), CpuSampler(place / "cpu.csv")
    with contextlib.ExitStack() as at_last:
        at_last.callback(_remove_if_empty, place)
        if not devices.start():
            at_last.callback(keep_topology, place / "topology.txt")
        at_last.callback(devices.stop)
        cores.start()
        cores.follow(targets[0].pid)
        at_last.callback(cores.stop)
        sampler = _sampler(targets, window, notify)
        if sampler is not None:
            at_last.callback(sampler.close)
            at_last.callback(_keep_stacks, sampler, folder, record, targets[0].folder)
            at_last.callback(sampler.end)
        yield sampler.settings if sampler is not None else None


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _sampler(targets: Sequence[Target], window: StepWindow, notify: Callable[[str], None]) -> SamplerProcess | None:
    tool = py_spy.find()
    if not window.sampling or tool.trouble:
        return None
    try:
        sampler = SamplerProcess(tool, with_source=window.source)
    except OSError as error:
        notify(f"stacks are not sampled: {error.strerror or error}")
        return None
    for user in {each.user for each in targets}:
        with contextlib.suppress(OSError):  # its stacks are not sampled then
            sampler.admit(user)
    return sampler


def _keep_stacks(sampler: SamplerProcess, folder: RunFolder, record: PassRecord, project: Path) -> None:
    record.notes += sampler.keep(folder.path / "stacks", PASS, project)
    record.files += [f"stacks/{file.name}" for file in folder.files("stacks", f"{PASS}-*.json.gz")]
