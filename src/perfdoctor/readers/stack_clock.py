"""When, on the clock of a recording, were stacks sampled that another tool wrote beside it?

Such a file says no time of day. Backward passes, optimizer steps and waits for batches are ranges in the recording and
functions in the stacks: of all shifts of the file's clock one must make nearly all of these samples lie in their
ranges, nearly all samples in these ranges be theirs, and be clearly better than any other shift, for steps that are
alike fit after one step, too. Where that is not so, the stacks describe the run as a whole, and stand for no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from perfdoctor.model.columns import Floats, Ints, Mask
from perfdoctor.model.host_rows import sampled_instants
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN, Frame, Timeline
from perfdoctor.readers.sampled_stacks import Anchor, anchors, inside
from perfdoctor.readers.side_files import extent_of
from perfdoctor.readers.stack_files import StackFile
from perfdoctor.vocabulary.names import python_code
from perfdoctor.vocabulary.names import torch as torch_names

#: How well a shift must fit. A sampler that waits for a core is late: with eight programs a core 0.86 was measured.
_LEAST_INSIDE = 0.8
#: Fewer samples in ranges may fit by chance, and a shift that is better by no more than so many, or such a share.
_FEWEST, _FEWEST_BETTER, _LEAST_BETTER = 20, 5, 0.1
#: Shifts are tried in steps of a ms, or longer ones where that were more than these.
_STEP_NS, _MOST_STEPS = 1_000_000, 1 << 21
#: Nodes of autograd follow each other: a longer pause is between two backward passes.
_PAUSE_NS = 1_000_000


def joined(timeline: Timeline, files: Sequence[StackFile]) -> Timeline:
    """The timeline with these stacks, each on its clock where that is proven, and a note where it is not."""
    frames, notes = [timeline["stack_samples"]], []
    for file in files:
        rows = _with_ranks(file.rows, timeline)
        kept = rows.take(rows["rank"] != UNKNOWN)
        if not len(kept):
            notes.append(f"The stacks in {file.name} are left out: which rank they belong to is not known.")
            continue
        placed = [_on_clock(kept.of(rank=rank), file, timeline) for rank in np.unique(kept["rank"]).tolist()]
        frames += placed
        if not all(rows["is_on_clock"].all() for rows in placed):
            why = "its lines are listed, and findings name none of them."
            notes.append(f"{file.name} cannot be put on the recording's clock: {why}")
    return timeline.with_frame("stack_samples", Frame.join(frames)).with_notes(*notes)


def _with_ranks(rows: Frame, timeline: Timeline) -> Frame:
    """The rows with the rank of their training's process; a single training is that of a single rank."""
    known = _ranks(timeline)
    trainings = set(rows["training"][~rows["is_worker"].astype(bool)].tolist())
    if len(timeline.ranks) == 1 and len(trainings) == 1 and not trainings & known.keys():
        known = dict.fromkeys(trainings, timeline.ranks[0])
    return rows.with_columns(rank=np.array([known.get(each, UNKNOWN) for each in rows["training"].tolist()], np.int64))


def _ranks(timeline: Timeline) -> dict[int, int]:
    """Ranks by process; a process that is in several ranks' rows, as containers number theirs alike, is none's."""
    found: dict[int, set[int]] = {}
    for signal in ("ops", "ranges", "calls", "functions"):
        rows = timeline[signal]
        for rank, process in set(zip(rows["rank"].tolist(), rows["process"].tolist(), strict=True)):
            found.setdefault(process, set()).add(rank)
    return {process: next(iter(ranks)) for process, ranks in found.items() if len(ranks) == 1 and process != UNKNOWN}


def _on_clock(rows: Frame, file: StackFile, timeline: Timeline) -> Frame:
    """The rows, which are of one rank, on the recording's clock where that is proven; else with times of 0."""
    training = rows.take(~rows["is_worker"] & rows["is_main"])
    shift_ns = proven_shift(training, file.period_ns, timeline, int(rows["rank"][0])) if file.has_times else None
    if shift_ns is None:
        return rows.with_columns(start_ns=np.zeros_like(rows.start_ns), end_ns=np.zeros_like(rows.end_ns))
    return rows.shifted(shift_ns).with_columns(is_on_clock=np.ones(len(rows), dtype=bool))


# --- the shift ---


class _Fit(Struct, frozen=True):
    """How samples lie at some shifts: in their ranges, outside of them while it was recorded, and others in ranges."""

    inside: Floats
    outside: Floats
    others: Floats

    @property
    def score(self) -> Floats:
        return self.inside - self.outside - self.others

    def is_close(self, at: int) -> bool:
        enough = self.inside[at] >= _FEWEST
        mine, theirs = self.inside[at] + self.outside[at], self.inside[at] + self.others[at]
        return bool(enough and self.inside[at] >= _LEAST_INSIDE * max(mine, theirs))


def proven_shift(samples: Frame, period_ns: int, timeline: Timeline, rank: int) -> int | None:
    """What to add to the times of a training thread's samples; None where no shift is proven.

    Nothing is recorded while torch.profiler starts or stops, and it stops soon after what was recorded last.
    """
    row, at_ns = sampled_instants(samples)
    anchored = anchors(samples, timeline.ranges.of(rank=rank), lambda: _backward(timeline, rank))
    recorded = extent_of(timeline[signal].of(rank=rank) for signal in ("ops", "ranges"))
    if not anchored or recorded is None:
        return None
    # Shifts that differ by less than a quarter of a step fit the same ranges, and the best of them is meant.
    apart = [np.diff(each.ranges.starts) for each in anchored if len(each.ranges) > 1]
    quarter_ns = int(np.median(np.concatenate(apart))) // 4 if apart else 0
    step_ns = max(_STEP_NS, int(at_ns.max() + recorded[1] - recorded[0]) // _MOST_STEPS)
    shifts, fit = _fits(at_ns, anchored, recorded, step_ns)
    edges, stops = (
        at_ns[samples.text("stack").matches(function)[row]]
        for function in (python_code.PROFILER_EDGE, python_code.PROFILER_STOP)
    )
    slack_ns = 2 * (period_ns + step_ns)
    allowed = ~_any(edges, recorded[0] - shifts + slack_ns, recorded[1] - shifts - slack_ns)
    if stops.size:
        allowed &= _any(stops, recorded[1] - shifts - slack_ns, recorded[1] - shifts + slack_ns + 2 * quarter_ns)
    score = np.where(allowed, fit.score, -np.inf)
    best = int(score.argmax())
    as_good = shifts[score > score[best] - max(_FEWEST_BETTER, _LEAST_BETTER * fit.inside[best])]
    if not fit.is_close(best) or np.abs(as_good - shifts[best]).max() > quarter_ns:
        return None
    near = shifts[best] + np.arange(-2 * step_ns, 2 * step_ns + 1, step_ns // 8)
    counts = inside(anchored, near)
    return int(np.median(near[counts == counts.max()]))


def _backward(timeline: Timeline, rank: int) -> Intervals:
    """When autograd ran on a rank, by its nodes: for a recording in which nobody opened a range around it."""
    ops = timeline.ops.of(rank=rank).named(torch_names.AUTOGRAD_NODE)
    # Half of the pause at each end joins nodes that are no further apart.
    wide = Intervals.of(ops.start_ns - _PAUSE_NS // 2, ops.end_ns + _PAUSE_NS // 2)
    return Intervals.of(wide.starts + _PAUSE_NS // 2, wide.ends - _PAUSE_NS // 2)


def _fits(at_ns: Ints, anchored: Sequence[Anchor], recorded: tuple[int, int], step_ns: int) -> tuple[Ints, _Fit]:
    """All shifts, in ns, at which a sample can lie in the recording, and how the samples fit there.

    They are found by correlation of counts and ranges, in bins of `step_ns`.
    """
    first, last = recorded
    bins, places = int(at_ns.max()) // step_ns + 1, (last - first) // step_ns + 1
    middle = first + np.arange(places) * step_ns + step_ns // 2
    size = 1 << int(bins + places).bit_length()

    def counted(times_ns: Ints) -> Any:
        return np.fft.rfft(np.bincount(times_ns // step_ns, minlength=bins).astype(float), size).conj()

    def shown(covered: Mask) -> Any:
        return np.fft.rfft(covered.astype(float), size)

    in_range = [shown(each.ranges.covers(middle)) for each in anchored]
    mine = [counted(each.at_ns) for each in anchored]
    whole, everything = shown(np.ones(places, dtype=bool)), counted(at_ns)
    within = np.fft.irfft(sum(a * b for a, b in zip(mine, in_range, strict=True)), size)
    while_recorded = np.fft.irfft(sum(mine) * whole, size)
    in_ranges = np.fft.irfft(everything * sum(in_range), size)
    lags = np.concatenate((np.arange(places), np.arange(-bins + 1, 0)))
    fit = _Fit(*(each[lags] for each in (within, while_recorded - within, in_ranges - within)))
    return first + lags * step_ns, fit


def _any(instants_ns: Ints, begin_ns: Ints, end_ns: Ints) -> Mask:
    """One bool for each time from `begin_ns` to `end_ns`: does one of the sorted `instants_ns` lie in it?"""
    return np.searchsorted(instants_ns, begin_ns) < np.searchsorted(instants_ns, end_ns)
