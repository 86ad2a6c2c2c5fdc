"""What did each process hold at the ends of its steps? Samples, and what follows from snapshots and running totals.

Steps of a snapshot are its own marks (`Optimizer.step`, `ProfilerStep`), else the steps of a trace of the same rank,
else the lows between two highs: what a training holds there is held from one step to the next.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfdoctor.metrics.memory.in_use import SnapshotReplay, replays
from perfdoctor.metrics.memory.peak import holders
from perfdoctor.model.columns import constant
from perfdoctor.model.steps import host_marks
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Text, Timeline
from perfdoctor.records.memory import Holder
from perfdoctor.vocabulary.names import torch as torch_names

_FEWEST_MARKS = 3
_STEP_MARKS = (torch_names.OPTIMIZER_STEP, torch_names.PROFILER_STEP)
#: A low counts where memory fell by this share of its largest fall, and rose again by as much; and only if the largest
#: fall is this share of all that memory went up and down by.
_LEAST_FALL_SHARE = 0.5
#: Those who hold most; who holds less than as many others explains no growth.
_MOST_KEEPERS = 30


def samples(timeline: Timeline) -> Frame:
    """Rows of the signal `memory`: as sampled, else from a snapshot or totals of the same rank and device.

    `reserved_bytes` is the most since the sample before.
    """
    sampled = timeline["memory"]
    known = set(zip(sampled["rank"].tolist(), sampled["device"].tolist(), strict=True))
    frames = [sampled]
    for replay in replays(timeline):
        if (replay.rank, replay.device) not in known:
            frames.append(_of_replay(replay, steps_of(timeline, replay)))
            known.add((replay.rank, replay.device))
    totals = timeline["memory_totals"]
    for rank, device in sorted(set(zip(totals["rank"].tolist(), totals["device"].tolist(), strict=True)) - known):
        marks = host_marks(timeline, rank)
        if marks is not None:
            frames.append(_of_totals(totals.of(rank=rank, device=device), marks.starts))
    return Frame.join([frame for frame in frames if len(frame)] or [sampled])


def steps_of(timeline: Timeline, replay: SnapshotReplay) -> Ints:
    """The places in the row of events behind which steps end, ascending; empty where that is not known."""
    events = replay.events
    for word in _STEP_MARKS:
        marked = np.unique(events["at"][events.text("line").matches(word)])
        if marked.size >= _FEWEST_MARKS:
            return marked
    marks = host_marks(timeline, replay.rank)
    if marks is not None:
        made = _made(replay)
        times = made.start_ns
        first = np.searchsorted(times, marks.starts)
        first = first[(first > 0) & (first < times.size)]  # steps that began while the snapshot recorded
        if first.size >= _FEWEST_MARKS:
            return np.unique(made["made_at"][first] - 1)
    return _lows(*replay.active)


def _lows(positions: Ints, used: Ints) -> Ints:
    """The positions at which memory was lowest between two highs, each at least half as high as the largest fall."""
    largest_fall = int((np.maximum.accumulate(used) - used).max(initial=0))
    # Where memory mostly rises, as in a forward pass that gathers layer by layer, small falls are no ends of steps.
    if not largest_fall or largest_fall < _LEAST_FALL_SHARE * int(used.max() - used.min()):
        return np.empty(0, np.int64)
    least = _LEAST_FALL_SHARE * largest_fall
    lows, falling, high, low, low_at = [], False, int(used[0]), int(used[0]), int(positions[0])
    for position, now in zip(positions.tolist(), used.tolist(), strict=True):
        if falling and now < low:
            low, low_at = now, position
        elif falling and now - low >= least:
            lows.append(low_at)
            falling, high = False, now
        elif not falling and high - now >= least:
            falling, low, low_at = True, now, position
        high = max(high, now)
    return np.array(lows if len(lows) >= _FEWEST_MARKS else [], np.int64)


def _of_replay(replay: SnapshotReplay, marks: Ints) -> Frame:
    positions, used = replay.active
    places, reserved = replay.reserved
    held = used[np.searchsorted(positions, marks, side="right") - 1]
    return _frame(replay.rank, replay.device, _times(replay, marks), held, _most_until(places, reserved, marks))


def _of_totals(totals: Frame, starts_ns: Ints) -> Frame:
    times = totals.start_ns
    at = starts_ns[(starts_ns > times[0]) & (starts_ns <= times[-1])]
    held = totals["allocated_bytes"][np.searchsorted(times, at, side="left") - 1]
    reserved = _most_until(times, totals["reserved_bytes"], at)
    return _frame(int(totals["rank"][0]), int(totals["device"][0]), at, held, reserved)


def _most_until(places: Ints, values: Ints, at: Ints) -> Ints:
    """The largest value between each mark and the one before it, that in force at the earlier one among them."""
    last = np.maximum(np.searchsorted(places, at, side="right") - 1, 0)
    first = np.insert(last[:-1], 0, [0] if last.size else [])
    spans = zip(first.tolist(), last.tolist(), strict=True)
    return np.array([values[begin : end + 1].max() for begin, end in spans], np.int64)


def _times(replay: SnapshotReplay, at: Ints) -> Ints:
    """When the allocation next to each place was made. The times only put places in order."""
    made = _made(replay)
    if not len(made):
        return at
    nearest = np.minimum(np.searchsorted(made["made_at"], at), len(made) - 1)
    return np.maximum.accumulate(made.start_ns)[nearest]


def _made(replay: SnapshotReplay) -> Frame:
    """The allocations that were made while the snapshot recorded, in their order."""
    made = replay.allocations.take(replay.allocations["made_at"] != UNKNOWN)
    return made.take(np.argsort(made["made_at"]))


def _frame(rank: int, device: int, at_ns: Ints, allocated: Ints, reserved: Ints) -> Frame:
    return Frame({
        "rank": constant(rank, at_ns.size), "process": constant(0, at_ns.size), "device": constant(device, at_ns.size),
        "start_ns": at_ns, "end_ns": at_ns,
        "allocated_bytes": allocated.astype(np.int64), "reserved_bytes": reserved,
        "name": Text.constant("cuda", at_ns.size),
    })  # fmt: skip


def keepers(timeline: Timeline, rank: int, least_share: float) -> Iterator[Holder]:
    """Who allocated in at least `least_share` of this rank's steps what was not freed until the end?

    What the last step made is left out: it may be freed yet.
    """
    for replay in replays(timeline):
        if replay.rank != rank:
            continue
        marks, allocations = steps_of(timeline, replay), replay.allocations
        if marks.size < _FEWEST_MARKS:
            continue
        made = allocations["made_at"]
        kept = (allocations["freed_at"] == UNKNOWN) & (made > marks[0]) & (made <= marks[-1])
        step = np.searchsorted(marks, made)
        for holder in holders(allocations, kept)[:_MOST_KEEPERS]:
            own = kept & allocations.text("stack").equals(holder.stack)
            own &= allocations.text("category").equals(holder.category)
            if np.unique(step[own]).size >= least_share * (marks.size - 1):
                yield holder
