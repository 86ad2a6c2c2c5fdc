"""Which row belongs to which other one? Ids of the call, op, range and step of each row.

An id is a row of the timeline's frame, or of the table of steps; UNKNOWN stands where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.work.phases import PHASES, phase_of
from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.columns import UNKNOWN, Ints, Text, occurring
from perfdoctor.model.device_work import SIGNALS as WORK
from perfdoctor.model.device_work import launching_calls
from perfdoctor.model.host_rows import nested_rows
from perfdoctor.model.launches import recorded_launches
from perfdoctor.model.place import JobPlace, Place
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


@once_per_timeline
def own_ns(timeline: Timeline, signal: str) -> Ints:
    """How long each row took without the rows directly inside of it, on its thread."""
    found: Ints = timeline[signal].duration_ns.copy()
    for rank in occurring(timeline[signal]["rank"]):
        rows = nested_rows(timeline, rank, signal)
        found[rows.numbers] = rows.own(found[rows.numbers])
    return found


@once_per_timeline
def gpu_ns(timeline: Timeline, signal: str) -> tuple[Ints, Ints]:
    """How long the device worked on what was launched in each row on its thread: in all of it, and outside of the rows
    inside of it. UNKNOWN on ranks of which no launch was recorded. What overlaps on the device counts in full.
    """
    outer = around(timeline, "calls", signal)
    own = np.zeros(len(timeline[signal]), np.int64)
    known: set[int] = set()
    for name in WORK:
        call, work = launching_calls(timeline, name), timeline[name]
        launched = np.flatnonzero(call != UNKNOWN)
        known.update(occurring(work["rank"][launched]))
        row = outer[call[launched]]
        np.add.at(own, row[row != UNKNOWN], work.duration_ns[launched][row != UNKNOWN])
    whole = own.copy()
    for rank in occurring(timeline[signal]["rank"]):
        rows = nested_rows(timeline, rank, signal)
        if rank not in known:
            whole[rows.numbers] = own[rows.numbers] = UNKNOWN
            continue
        for level in reversed(rows.levels[1:]):
            np.add.at(whole, rows.numbers[rows.parent[level]], whole[rows.numbers[level]])
    return whole, own


def steps_of(timeline: Timeline, signal: str, launched: Launching, steps: StepTable) -> Ints:
    """Step of the first work launched inside of each row of a signal of the host, or, where none was, of the row around
    it, if all work of that is of one step; without a GPU the step in which the row began.
    """
    frame = timeline[signal]
    first, last = np.full(len(frame), _NEVER), np.full(len(frame), UNKNOWN)
    row = around(timeline, "calls", signal)[launched.calls]
    known = (row != UNKNOWN) & (launched.step != UNKNOWN)
    np.minimum.at(first, row[known], launched.step[known])
    np.maximum.at(last, row[known], launched.step[known])
    for rank in occurring(frame["rank"]):
        rows = nested_rows(timeline, rank, signal)
        pairs = [(rows.numbers[level], rows.numbers[rows.parent[level]]) for level in rows.levels[1:]]
        for inner, outer in reversed(pairs):
            np.minimum.at(first, outer, first[inner])
            np.maximum.at(last, outer, last[inner])
        for inner, outer in pairs:
            lacks = (first[inner] == _NEVER) & (first[outer] == last[outer])
            first[inner[lacks]] = last[inner[lacks]] = first[outer[lacks]]
    return np.where(first == _NEVER, steps.of(frame, on_device=False), first)


def steps_of_calls(timeline: Timeline, launched: Launching, steps: StepTable) -> Ints:
    """Step of the first work that each call launched; of others that of the op, else the range, around it."""
    found = np.full(len(timeline.calls), UNKNOWN)
    found[launched.calls] = launched.step
    for signal in ("ops", "ranges"):
        if len(timeline[signal]):
            row = around(timeline, "calls", signal)
            outer = np.where(row == UNKNOWN, UNKNOWN, steps_of(timeline, signal, launched, steps)[np.maximum(row, 0)])
            found = np.where(found == UNKNOWN, outer, found)
    return found


def phases(places: Sequence[Place], signal: str, count: int) -> Text:
    """The phase of the step in which each of `count` rows of the device's work was launched; "" where not known."""
    found = np.zeros(count, np.int32)
    for place in places:
        if place.device is not None:
            frame = place.timeline[signal]
            own = np.flatnonzero((frame["rank"] == place.rank) & (frame["device"] == place.device))
            found[own] = phase_of(place, recorded_launches(place, signal))
    return Text(found, list(PHASES))
