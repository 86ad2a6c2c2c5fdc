"""Which row belongs to which other one? Ids of the call, op, range and step of each row.

An id is a row of the timeline's frame, or of the table of steps; UNKNOWN stands where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.columns import UNKNOWN, Ints, occurring
from perfdoctor.model.device_work import SIGNALS as WORK
from perfdoctor.model.device_work import launching_calls
from perfdoctor.model.host_rows import nested_rows
from perfdoctor.model.place import JobPlace
from perfdoctor.model.timeline import Frame, Timeline

_NEVER = np.iinfo(np.int64).max


@once_per_timeline
def parents(timeline: Timeline, signal: str) -> Ints:
    """Row of the same signal around each row of the signal, on its thread."""
    found = np.full(len(timeline[signal]), UNKNOWN, np.int64)
    for rank in occurring(timeline[signal]["rank"]):
        rows = nested_rows(timeline, rank, signal)
        inner = rows.parent != UNKNOWN
        found[rows.numbers[inner]] = rows.numbers[rows.parent[inner]]
    return found


@once_per_timeline
def around(timeline: Timeline, signal: str, outer: str) -> Ints:
    """Innermost row of `outer`, another signal, in which each row of the signal began, on its thread."""
    frame = timeline[signal]
    found = np.full(len(frame), UNKNOWN, np.int64)
    for rank in occurring(frame["rank"]):
        own = np.flatnonzero(frame["rank"] == rank)
        rows = nested_rows(timeline, rank, outer)
        inner = rows.innermost(frame.start_ns[own], frame["process"][own], frame["thread"][own])
        known = inner != UNKNOWN
        found[own[known]] = rows.numbers[inner[known]]
    return found


class StepTable(Struct, frozen=True):
    """The rows of the table of steps: of one place after the other. `firsts`: the first row of each place."""

    places: Sequence[JobPlace]

    @property
    def firsts(self) -> Ints:
        return np.cumsum([0, *(max(place.steps.bounds.size - 1, 0) for place in self.places)])

    @property
    def with_firsts(self) -> Iterator[tuple[JobPlace, int]]:
        return zip(self.places, self.firsts.tolist(), strict=False)

    def of(self, frame: Frame, *, on_device: bool) -> Ints:
        """Step in which each row of device work began; of the host, on a run without a GPU, where steps are its own."""
        found = np.full(len(frame), UNKNOWN, np.int64)
        ranks = set(occurring(frame["rank"]))
        for place, first in self.with_firsts:
            if place.rank in ranks and (place.device is not None) == on_device:
                is_own = frame["rank"] == place.rank
                own = np.flatnonzero(is_own & (frame["device"] == place.device) if on_device else is_own)
                step = step_at(place, frame.start_ns[own])
                found[own] = np.where(step == UNKNOWN, UNKNOWN, step + first)
        return found


def step_at(place: JobPlace, at_ns: Ints) -> Ints:
    """Step of the place, counted from 0, at each instant `at_ns`; UNKNOWN if it is in none."""
    ends = place.steps.ends_ns
    if not ends.size:
        return np.full(at_ns.size, UNKNOWN, np.int64)
    step = np.searchsorted(place.steps.bounds[:-1], at_ns, side="right") - 1
    inside = (step >= 0) & (at_ns < ends[np.maximum(step, 0)])
    return np.where(inside, step, UNKNOWN)


class Launching(Struct, frozen=True):
    """The calls that launched device work: their rows, how much each launched, when its first work began, and where."""

    calls: Ints
    work_count: Ints
    first_start_ns: Ints
    step: Ints


def launching(timeline: Timeline, steps: StepTable) -> Launching:
    call = np.concatenate([launching_calls(timeline, signal) for signal in WORK])
    start = np.concatenate([timeline[signal].start_ns for signal in WORK])
    step = np.concatenate([steps.of(timeline[signal], on_device=True) for signal in WORK])
    known = np.flatnonzero(call != UNKNOWN)
    order = known[np.lexsort((start[known], call[known]))]
    calls, first, count = np.unique(call[order], return_index=True, return_counts=True)
    return Launching(calls, count, start[order][first], step[order][first])


def steps_of_ops(timeline: Timeline, launched: Launching, steps: StepTable) -> Ints:
    """Step of the first work launched inside of each op; without a GPU the step in which the op began."""
    found = np.full(len(timeline.ops), _NEVER)
    op = around(timeline, "calls", "ops")[launched.calls]
    known = (op != UNKNOWN) & (launched.step != UNKNOWN)
    np.minimum.at(found, op[known], launched.step[known])
    for rank in occurring(timeline.ops["rank"]):
        rows = nested_rows(timeline, rank, "ops")
        for level in reversed(rows.levels[1:]):
            np.minimum.at(found, rows.numbers[rows.parent[level]], found[rows.numbers[level]])
    return np.where(found == _NEVER, steps.of(timeline.ops, on_device=False), found)
