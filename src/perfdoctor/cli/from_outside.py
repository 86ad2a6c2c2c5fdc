"""What is printed and written of a training that `perfdoctor attach` could only look at from outside?"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from perfdoctor.cli import say
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from perfdoctor.model.timeline import Frame
    from perfdoctor.recording.attaching.outside import SampledOutside
    from perfdoctor.recording.attaching.target import Target
    from perfdoctor.records.outside import OutsideProcess, OutsideView

NAME = "outside.json"
#: Fewer of the samples are not worth a line.
_LEAST_SHARE = 0.02
#: A process that uses less of a core waits, whatever its stack says.
_IDLE_CORES = 0.05


def look(targets: Sequence[Target], into: Path, why: PerfdoctorError, *, with_source: bool, as_json: bool) -> None:
    """Sample the processes, print what that shows, and keep it in the folder. Raises OSError."""
    from perfdoctor.recording.attaching import outside
    from perfdoctor.system.paths import write_whole

    say.note(f"looking from outside for {outside.SECONDS:.0f} s: nothing runs in the program, and no step is known")
    view = _view(outside.sample(targets, into, with_source=with_source), targets, why)
    text = msgspec.json.format(msgspec.json.encode(view), indent=1)
    write_whole(into / NAME, text + b"\n")
    if as_json:
        say.document(text.decode() + "\n")
        return
    for line in lines(view):
        say.line(line)


def _view(sampled: SampledOutside, targets: Sequence[Target], why: PerfdoctorError) -> OutsideView:
    from perfdoctor.diagnosis.from_outside import of_process
    from perfdoctor.model.timeline import Frame
    from perfdoctor.readers import sampled_stacks
    from perfdoctor.records.outside import OutsideView

    read = [sampled_stacks.read(file, {}, 0) for file in sampled.stacks]
    rows = Frame.join(read) if read else None
    processes = tuple(
        of_process(each.pid, sampled.cores.get(each.pid, 0.0), rows.take(rows["process"] == each.pid))
        for each in targets
        if rows is not None
    )
    return OutsideView(why.what, sampled.seconds, processes, _gpu_use(sampled.devices), notes=tuple(sampled.notes))


def _gpu_use(file: Path | None) -> dict[str, float]:
    """Mean use of each GPU, as NVML has it: the share of time in which some kernel ran."""
    from perfdoctor.readers.machine import samples

    if file is None:
        return {}
    with contextlib.suppress(PerfdoctorError):
        rows: Frame = samples.read(file)["device_samples"]
        used, devices = rows["utilization_percent"], rows["device"]
        means = {
            str(number): float(np.nanmean(used[devices == number])) / 100 for number in np.unique(devices).tolist()
        }
        return {number: mean for number, mean in means.items() if not math.isnan(mean)}
    return {}


def lines(view: OutsideView) -> Iterator[str]:
    """Yield what is printed."""
    yield f"From outside, {view.seconds:.0f} s, low confidence: {view.why}."
    yield "Where a step begins and ends is not known, so no saving is predicted."
    for number, use in view.gpu_use.items():
        yield f"GPU {number}: some kernel ran in {use:.0%} of the time"
    for process in view.processes:
        yield from _of_process(process)
    for note in view.notes:
        yield f"Note: {note}"


def _of_process(process: OutsideProcess) -> Iterator[str]:
    from perfdoctor.diagnosis.from_outside import FEWEST_SAMPLES

    cores = f"kept {process.cores:.1f} cores busy"
    if process.samples < FEWEST_SAMPLES:
        yield f"Process {process.pid} {cores}; of its main thread there are {process.samples} samples, too few"
        return
    yield f"Process {process.pid} {cores}; of its main thread there are {process.samples} samples:"
    if process.stands_still and process.cores < _IDLE_CORES:
        yield f"  It stands still, in {process.stands_still}"
    for each in process.shares:
        if each.share >= _LEAST_SHARE:
            line = f", mostly at {each.line}" if each.line else ""
            more = f" (perfdoctor explain {each.rule})" if each.rule else ""
            yield f"  {each.share:4.0%}  {each.name}{line}{more}"
