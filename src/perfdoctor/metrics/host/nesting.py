"""Which op, range or function was the host in, the innermost one, and for how long of a given time?

Rows of one thread nest: they are peeled level by level, so that each question costs one pass a level and none a row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfdoctor.model.intervals import Intervals, Nanoseconds
from perfdoctor.model.timeline import Frame, Ints

#: Deeper than any stack of Python in practice; what lies below counts for the row above it.
_DEEPEST = 200


def levels(rows: Frame) -> Iterator[Ints]:
    """Indices of the rows by nesting depth, outermost first, each level sorted by start. One thread only."""
    start, end = rows.start_ns, rows.end_ns
    left = np.lexsort((-end, start))
    for _ in range(_DEEPEST):
        if not left.size:
            return
        before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end[left])[:-1]))
        outer = start[left] >= before
        yield left[outer]
        left = left[~outer]


def _threads(rows: Frame) -> Iterator[tuple[int, Ints]]:
    for thread in np.unique(rows["thread"]).tolist():
        yield thread, np.flatnonzero(rows["thread"] == thread)


def innermost_at(rows: Frame, instants: Nanoseconds, threads: Ints) -> Ints:
    """For each instant on its thread the row that covers it most closely, -1 where none does."""
    found = np.full(instants.size, -1, dtype=np.int64)
    for thread, own in _threads(rows):
        asked = np.flatnonzero(threads == thread)
        if not asked.size:
            continue
        mine = rows.take(own)
        for level in levels(mine):
            at = np.searchsorted(mine.start_ns[level], instants[asked], side="right") - 1
            row = level[np.maximum(at, 0)]
            covers = (at >= 0) & (mine.end_ns[row] >= instants[asked])
            found[asked[covers]] = own[row[covers]]
    return found


def own_ns(rows: Frame, pieces: Intervals) -> Nanoseconds:
    """How long of `pieces` each row was the innermost of its thread, in ns."""
    inside = pieces.overlap_ns(rows.start_ns, rows.end_ns)
    own: Nanoseconds = inside.copy()
    for _, indices in _threads(rows):
        touched = indices[inside[indices] > 0]  # what has no share takes none from the row around it
        mine = rows.take(touched)
        above: Ints | None = None
        for level in levels(mine):
            if above is not None:
                parent = above[np.searchsorted(mine.start_ns[above], mine.start_ns[level], side="right") - 1]
                np.subtract.at(own, touched[parent], inside[touched[level]])
            above = level
    np.maximum(own, 0, out=own)
    return own
