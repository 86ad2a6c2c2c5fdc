"""Which row of the host lies around which, on the same thread? Worked out once for all questions about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.host.nesting import levels
from perfdoctor.model.intervals import Nanoseconds
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask
from perfdoctor.vocabulary.names.python_code import is_user_function


@dataclass(frozen=True)
class Nested:
    """Rows of one process' threads. `parent`: the row around each, UNKNOWN if none. `threads`: their rows by start."""

    rows: Frame
    parent: Ints
    threads: dict[int, Ints]

    def innermost(self, instants: Nanoseconds, thread: Ints) -> Ints:
        """For each instant on its thread the row that covers it most closely, UNKNOWN where none does.

        From the last row that began before, outwards to the first that has not ended yet.
        """
        found = np.full(instants.size, UNKNOWN, dtype=np.int64)
        for number, own in self.threads.items():
            asked = np.flatnonzero(thread == number)
            at = np.searchsorted(self.rows.start_ns[own], instants[asked], side="right") - 1
            asked, row = asked[at >= 0], own[at[at >= 0]]
            while asked.size:
                open_ = self.rows.end_ns[row] >= instants[asked]
                found[asked[open_]] = row[open_]
                asked, row = asked[~open_], self.parent[row[~open_]]
                asked, row = asked[row != UNKNOWN], row[row != UNKNOWN]
        return found

    def own(self, quantity: Nanoseconds) -> Nanoseconds:
        """What of a quantity of each row is not that of a row inside it; none is less than 0."""
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


def nested(rows: Frame) -> Nested:
    """Of the rows of one rank."""
    parent = np.full(len(rows), UNKNOWN, dtype=np.int64)
    threads = {}
    for thread in np.unique(rows["thread"]).tolist():
        own = np.flatnonzero(rows["thread"] == thread)
        mine, above = rows.take(own), np.empty(0, np.int64)
        for level in levels(mine):
            if above.size:
                around = np.searchsorted(mine.start_ns[above], mine.start_ns[level], side="right") - 1
                parent[own[level]] = own[above[around]]
            above = level
        threads[int(thread)] = own[np.lexsort((-mine.end_ns, mine.start_ns))]
    return Nested(rows, parent, threads)


def ops_of(run: Run, rank: int) -> Nested:
    return _kept(run, f"nested ops of {rank}", lambda: nested(run.timeline.ops.of(rank=rank)))


def lines_of(run: Run, rank: int) -> Nested:
    """The functions of the user's own code, each with the line on which it begins."""

    def made() -> Nested:
        rows = run.timeline["functions"].of(rank=rank)
        return nested(rows.take(rows.name.where(is_user_function)))

    return _kept(run, f"nested lines of {rank}", made)


def _kept(run: Run, key: str, made: Callable[[], Nested]) -> Nested:
    if key not in run.kept:
        run.kept[key] = made()
    found = run.kept[key]
    assert isinstance(found, Nested)
    return found
