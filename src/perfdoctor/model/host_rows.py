"""Which row of the host lies around which on its thread, and when was a row of some name open?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.columns import UNKNOWN, Ints, Mask, Whole, occurring
from perfdoctor.model.intervals import Intervals, Nanoseconds
from perfdoctor.model.timeline import Frame, Timeline

#: Deeper than any stack of Python in practice; what lies below counts for no row around it.
_DEEPEST = 200

#: A process and one of its threads: thread numbers may come again in another process.
Thread = tuple[int, int]


class Nested(Struct, frozen=True, dict=True):
    """Rows of one rank's threads, each inside the row around it.

    `numbers`: which rows of the timeline's frame they are. `parent`: the row around each, UNKNOWN if none.
    `levels`: the rows by depth, outermost first. `threads`: the rows of each by start, the outer of two first.
    A row covers `[start, end)`. Numbers of rows are held in 32 bits where these are enough.
    """

    rows: Frame
    numbers: Whole
    parent: Whole
    levels: tuple[Whole, ...]
    threads: Mapping[Thread, Whole]

    def innermost(self, at_ns: Nanoseconds, process: Ints, thread: Ints) -> Ints:
        """Innermost row around each instant (`at_ns`) on its thread, UNKNOWN if there is none.

        From the last row that began before, outwards to the first that has not ended yet.
        """
        found = np.full(at_ns.size, UNKNOWN, dtype=np.int64)
        for (own_process, own_thread), own in self.threads.items():
            wanted = np.flatnonzero((thread == own_thread) & (process == own_process))
            last = np.searchsorted(self.rows.start_ns[own], at_ns[wanted], side="right") - 1
            wanted, row = wanted[last >= 0], own[last[last >= 0]]
            while wanted.size:
                covers = self.rows.end_ns[row] > at_ns[wanted]
                found[wanted[covers]] = row[covers]
                wanted, row = wanted[~covers], self.parent[row[~covers]]
                wanted, row = wanted[row != UNKNOWN], row[row != UNKNOWN]
        return found

    def innermost_of(self, chosen: Mask) -> Whole:
        """Innermost chosen row around each row, or the row itself; UNKNOWN if neither is `chosen` (one bool a row)."""
        found = self._or_none(chosen)
        for level in self.levels[1:]:
            found[level] = np.where(chosen[level], level, found[self.parent[level]])
        return found

    def outermost_of(self, chosen: Mask) -> Whole:
        """Outermost chosen row around each row, or the row itself; UNKNOWN if neither is `chosen` (one bool a row)."""
        found = self._or_none(chosen)
        for level in self.levels[1:]:
            above = found[self.parent[level]]
            found[level] = np.where(above != UNKNOWN, above, found[level])
        return found

    def _or_none(self, chosen: Mask) -> Whole:
        found = np.arange(len(self.rows), dtype=self.parent.dtype)
        found[~chosen] = UNKNOWN
        return found

    @cached_property
    def outermost(self) -> Whole:
        """Outermost row around each row, or the row itself."""
        return self.outermost_of(np.ones(len(self.rows), dtype=bool))

    def own(self, quantity: Nanoseconds) -> Nanoseconds:
        """Subtract the `quantity` of the rows directly inside from that of each row; never below 0."""
        inner = self.parent != UNKNOWN
        taken = np.bincount(self.parent[inner], weights=quantity[inner], minlength=len(self.rows))
        own: Nanoseconds = np.maximum(quantity - taken.astype(np.int64), 0)
        return own

    def again(self, group: Ints) -> Mask:
        """One bool a row: does it lie inside a row of its own group? Adding both up would count its time twice."""
        again = np.zeros(len(self.rows), dtype=bool)
        row, around = np.arange(len(self.rows)), self.parent
        while row.size:
            inner = around != UNKNOWN
            row, around = row[inner], around[inner]
            again[row] |= group[around] == group[row]
            around = self.parent[around]
        return again


def nested(rows: Frame, numbers: Ints | None = None) -> Nested:
    """Nest the rows of one rank. `numbers`: their row numbers in the timeline's frame, if they are only some of it."""
    short: type[np.signedinteger[Any]] = np.int32 if len(rows) <= np.iinfo(np.int32).max else np.int64
    parent: Whole = np.full(len(rows), UNKNOWN, dtype=short)
    depths: list[list[Whole]] = []
    threads = {}
    for thread, own in by_thread(rows):
        order = _outer_first(rows, own).astype(short)
        threads[thread] = order
        above: Whole = np.empty(0, short)
        for depth, level in enumerate(_levels(rows, order)):
            if depth:
                around = np.searchsorted(rows.start_ns[above], rows.start_ns[level], side="right") - 1
                parent[level] = above[around]
            if depth == len(depths):
                depths.append([])
            depths[depth].append(level)
            above = level
    levels = tuple(np.concatenate(level) for level in depths)
    return Nested(rows, np.arange(len(rows), dtype=short) if numbers is None else numbers, parent, levels, threads)


def by_thread(rows: Frame) -> Iterator[tuple[Thread, Ints]]:
    """Each (process, thread) with the numbers of its rows, in their order."""
    for process in occurring(rows["process"]):
        of_process = np.flatnonzero(rows["process"] == process)
        threads = rows["thread"][of_process]
        for thread in occurring(threads):
            yield (process, thread), of_process[threads == thread]


def _outer_first(rows: Frame, own: Ints) -> Ints:
    """The rows `own`, which are sorted by start, with the longest first of those that start together."""
    start = rows.start_ns[own]
    same = start[1:] == start[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if not tied.size:
        return own
    order: Ints = own.copy()
    among = own[tied]
    order[tied] = among[np.lexsort((-rows.end_ns[among], start[tied]))]
    return order


def _levels(rows: Frame, order: Whole) -> Iterator[Whole]:
    """Rows of one thread by depth, outermost first, each level sorted by start. `order`: by start, longest first."""
    start, end = rows.start_ns, rows.end_ns
    left = order
    for _ in range(_DEEPEST):
        if not left.size:
            return
        outer = start[left] >= np.concatenate(([start[left[0]]], np.maximum.accumulate(end[left])[:-1]))
        yield left[outer]
        left = left[~outer]


def outermost(rows: Frame) -> Frame:
    """The rows that no other row of the same thread contains."""
    keep = np.zeros(len(rows), dtype=bool)
    for _, own in by_thread(rows):
        keep[next(_levels(rows, _outer_first(rows, own)))] = True
    return rows.take(keep)


def on_busiest_thread(rows: Frame) -> Frame:
    """The outermost rows on the thread with most rows."""
    threads, counts = np.unique(rows["thread"], return_counts=True)
    return outermost(rows.take(rows["thread"] == threads[counts.argmax()]))


def own_ns(rows: Frame, pieces: Intervals) -> Nanoseconds:
    """How long of `pieces` each row was the innermost of its thread, in ns."""
    inside = pieces.overlap_ns(rows.start_ns, rows.end_ns)
    touched = np.flatnonzero(inside)  # what has no share takes none from the row around it
    inside[touched] = nested(rows.take(touched)).own(inside[touched])
    return inside


@once_per_timeline
def nested_rows(timeline: Timeline, rank: int, signal: str) -> Nested:
    """All rows of a signal on one rank."""
    frame = timeline[signal]
    rows = frame.of(rank=rank)
    return nested(rows, None if rows is frame else np.flatnonzero(frame["rank"] == rank))


@once_per_timeline
def named(timeline: Timeline, signal: str, pattern: re.Pattern[str]) -> Mask:
    """One bool a row of the signal: does the pattern occur in its name?"""
    return timeline[signal].name.matches(pattern)


@once_per_timeline
def when_open(timeline: Timeline, rank: int, pattern: re.Pattern[str], *signals: str) -> Intervals:
    """When any row of these signals with such a name was open, on any thread of the rank."""
    found = Intervals.empty()
    for signal in signals:
        rows = timeline[signal]
        own = np.flatnonzero(named(timeline, signal, pattern) & (rows["rank"] == rank))
        found = found | Intervals.of(rows.start_ns[own], rows.end_ns[own])
    return found


def sampled_instants(rows: Frame) -> tuple[Ints, Ints]:
    """(row, ns) of each sample in rows of `stack_samples`.

    The samples of a row are spread evenly over its time, the first one at its start.
    """
    counts = rows["samples"]
    row = np.repeat(np.arange(counts.size), counts)
    number = np.arange(row.size) - (np.cumsum(counts) - counts)[row]
    return row, rows.start_ns[row] + number * rows.duration_ns[row] // counts[row]
