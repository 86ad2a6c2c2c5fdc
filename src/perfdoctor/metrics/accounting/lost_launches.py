"""What of a trace that is cut off within its GPU activity is there whole?

Kineto writes the ops first, and behind them launches with their kernels, a stretch of the program at a time and not in
the order of time. Of a file that ends among these some stretches have both and others neither, as if the host had
launched nothing there. Whichever they are, ops say: a matmul or a convolution launches a kernel.

```
ops          mm  mm  mm  mm  mm  mm  mm  mm          in 6 whole traces (eager and DDP; A100, V100, H100, B200,
launches     │   │   │                │   │          RTX 2080) 100 % of them have a launch inside
             whole       lost         whole
```
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.device_work import DeviceWork
from perfdoctor.model.host_rows import by_thread
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.run import Run
from perfdoctor.model.steps import NO_STEPS, Steps
from perfdoctor.model.timeline import UNKNOWN, Ints, Timeline
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.sentences import LOST_LAUNCHES

#: A smaller share, of what is lost or of what is left, is not said exactly.
_LEAST_SHARE = 0.01
_NEVER = np.iinfo(np.int64).max


class Lost(Struct, frozen=True):
    """The matmuls and convolutions of one rank whose launches are lost: when each began, and their share of all."""

    at_ns: Ints
    share: float


@once_per_timeline
def lost_launches(timeline: Timeline, rank: int) -> Lost:
    """What one rank has lost; nothing where its file is whole, or ends in front of all that a device did."""
    nothing = Lost(np.empty(0, np.int64), 0.0)
    if not any(source.cut_off and rank in source.ranks for source in timeline.sources):
        return nothing
    ops, calls = timeline.ops.of(rank=rank), timeline.calls.of(rank=rank)
    products, launches = ops.named(torch_names.MATMUL), calls.named(cuda_names.LAUNCH)
    if not len(products) or rank not in {of_rank for of_rank, _ in timeline.places}:
        return nothing
    of_threads = dict(by_thread(launches))
    has = np.zeros(len(products), dtype=bool)
    for thread, rows in by_thread(products):
        at = launches.start_ns[of_threads.get(thread, np.empty(0, np.int64))]
        has[rows] = np.searchsorted(at, products.end_ns[rows]) > np.searchsorted(at, products.start_ns[rows])
    return Lost(np.sort(products.start_ns[~has]), float(1 - has.mean()))


def whole_steps(timeline: Timeline, rank: int, work: DeviceWork, steps: Steps) -> Steps:
    """The longest run of the `steps` that are used which have all their launches; NO_STEPS where none has."""
    lost = lost_launches(timeline, rank).at_ns
    if not steps.used or not lost.size:
        return steps
    begin = _host_begin(timeline, work, steps)
    has_lost = np.diff(np.searchsorted(lost, begin)) > 0
    edges = np.flatnonzero(np.diff(np.concatenate(([True], has_lost, [True])).astype(np.int8)))
    if not edges.size:
        return NO_STEPS
    first, behind = edges[0::2], edges[1::2]
    longest = int((behind - first).argmax())
    found = steps.first + int(first[longest]), steps.first + int(behind[longest])
    return replace(steps, first=found[0], last=found[1], steady=(steps.first, steps.last))


def _host_begin(timeline: Timeline, work: DeviceWork, steps: Steps) -> Ints:
    """When the host began each step that is used, and the one behind: with its first launch, if nothing else says."""
    if steps.host_bounds is not None:
        return steps.host_bounds
    launched = np.flatnonzero(work.launch != UNKNOWN)
    starts, at = work.start_ns[launched], timeline.calls.start_ns[work.launch[launched]]
    row = np.searchsorted(starts, steps.used_bounds)
    begin = np.append(at, _NEVER)[row]
    return np.maximum.accumulate(begin)


def whole_stretch(timeline: Timeline, rank: int, work: DeviceWork) -> Intervals:
    """From the first to the last work of the stretch with most launches and nothing lost; where nothing is, of all."""
    lost, launched = lost_launches(timeline, rank).at_ns, np.flatnonzero(work.launch != UNKNOWN)
    if lost.size and launched.size:
        stretch = np.searchsorted(lost, timeline.calls.start_ns[work.launch[launched]])
        rows = launched[stretch == np.bincount(stretch).argmax()]
        return Intervals.single(int(work.start_ns[rows[0]]), int(work.end_ns[rows].max()))
    return Intervals.single(int(work.start_ns[0]), int(work.end_ns.max()))


def lost_note(run: Run) -> Iterator[str]:
    """Say how much is lost, and what is judged instead."""
    places = [place for place in run.places if place.device is not None]
    share = max((lost_launches(run.timeline, place.rank).share for place in places), default=0.0)
    if not share:
        return
    steps = min((place.steps.used for place in places if place.steps.used), default=0)
    kept = "the longest stretch without a gap is"
    if steps:
        kept = f"the {steps} steps that follow each other whole are" if steps > 1 else "one step that is whole is"
    yield f"{LOST_LAUNCHES} ({_percent(share)} of its launches are lost): only {kept} judged. Copy or record it again."


def _percent(share: float) -> str:
    if _LEAST_SHARE <= share <= 1 - _LEAST_SHARE:
        return f"{100 * share:.0f} %"
    return "less than 1 %" if share < _LEAST_SHARE else "more than 99 %"
