"""Who waits for whom at collectives, among the ranks that were recorded?

A collective ends for all ranks together, so the rank that is in it for the shortest time came last, and the others'
extra time is waiting. That needs no common clock. Threads of the host that send (gloo) end together only as soon as
each gets a core, which is milliseconds on a busy machine: where the clocks of such ranks agree, who came last is read
from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perfdoctor.metrics.communication.matching import Matrix, column, rows_of_collectives
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask

#: The rank with the smallest part of an uneven all-to-all is done first, and was not late for that.
_EVEN = 1.1


@dataclass(frozen=True)
class Skew:
    """Times of matched collectives: `duration_ns[i, k]` is collective k on the i-th of `ranks`, from `start_ns[i, k]`.

    `start_ns` is by each rank's own clock. UNKNOWN stands where a rank is not in the collective's group. `rows[i, k]`
    is its row of the rank's `recorded_collectives`; `kinds` has the kind of each collective.
    """

    ranks: tuple[int, ...]
    start_ns: Matrix
    duration_ns: Matrix
    rows: Matrix
    kinds: tuple[str, ...]

    def of(self, columns: Mask) -> Skew:
        """The same of these collectives alone."""
        kinds = tuple(kind for kind, kept in zip(self.kinds, columns.tolist(), strict=True) if kept)
        start, duration, rows = (each[:, columns] for each in (self.start_ns, self.duration_ns, self.rows))
        return Skew(self.ranks, start, duration, rows, kinds)

    @cached_property
    def taking_part(self) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """One bool a rank and collective: is the rank in its group?"""
        known: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = self.duration_ns != UNKNOWN
        return known

    @property
    def _sorted_ns(self) -> Matrix:
        """Per collective the durations on the ranks that take part, the shortest first."""
        return np.sort(np.where(self.taking_part, self.duration_ns, np.iinfo(np.int64).max), axis=0)

    @cached_property
    def shortest_ns(self) -> Ints:
        """Per collective: from the arrival of the last rank to the end, which is the transfer."""
        shortest: Ints = self._sorted_ns[0]
        return shortest

    @cached_property
    def spent_ns(self) -> Ints:
        """Per rank: how long it stood in collectives; in several at once, once."""
        return np.array([self._standing(rank, self.duration_ns[rank]).total_ns for rank in range(len(self.ranks))])

    @cached_property
    def waited_ns(self) -> Matrix:
        """Per rank and collective: how long it waited there for the last rank, and not in an earlier one already."""
        waited = np.zeros_like(self.duration_ns)
        for rank, there in enumerate(self.taking_part):
            begun = self.start_ns[rank, there]
            waited[rank, there] = _not_twice(begun, begun + (self.duration_ns[rank] - self.shortest_ns)[there])
        return waited

    @property
    def waiting_ns(self) -> Ints:
        """Per rank: how long it stood in collectives that the last rank had not entered yet."""
        waiting: Ints = self.waited_ns.sum(axis=1)
        return waiting

    def waits(self, rank: int, at_most_ns: Ints | None = None) -> Intervals:
        """When this rank waited, by its own clock. `at_most_ns`: by collective, only so long before the last one came.

        `rank` is the place in `ranks`.
        """
        waited = self.duration_ns[rank] - self.shortest_ns
        piece = waited if at_most_ns is None else np.minimum(waited, at_most_ns)
        return self._standing(rank, piece, waited - piece)

    def _standing(self, rank: int, lasts_ns: Ints, later_ns: Ints | int = 0) -> Intervals:
        begun = self.start_ns[rank] + later_ns
        there = self.taking_part[rank]
        return Intervals.of(begun[there], (begun + lasts_ns)[there])

    @property
    def transfer_ns(self) -> int:
        """How long the collectives took once everybody was there."""
        return int(self.shortest_ns.sum())

    @property
    def late_rank(self) -> int:
        """The rank the others wait for most; among equals the one that waits least itself."""
        return self.ranks[int(np.lexsort((self.waiting_ns, -self.caused_ns))[0])]

    @property
    def last(self) -> Ints:
        """Per collective: which of `ranks` (its place there) came last."""
        last: Ints = np.where(self.taking_part, self.duration_ns, np.iinfo(np.int64).max).argmin(axis=0)
        return last

    @cached_property
    def late_by_ns(self) -> Ints:
        """Per collective: how much the last rank came after the middle one; of two, after the other."""
        middle = np.nanmedian(np.where(self.taking_part, self.duration_ns.astype(float), np.nan), axis=0)
        before = np.where(self.taking_part.sum(axis=0) > 2, middle, self._sorted_ns[1])
        return (before - self.shortest_ns).astype(np.int64)

    @cached_property
    def behind_ns(self) -> Ints:
        """Per collective: how much the last rank came after the last but one, who would be waited for instead."""
        behind: Ints = self._sorted_ns[1] - self.shortest_ns
        return behind

    @cached_property
    def caused_ns(self) -> Ints:
        """Per rank: by how much it came after the middle rank, in the collectives in which it came last.

        Weighed so, ranks that come together but for some ns do not count as late by turns.
        """
        return np.array([self._later_ns(rank, self.late_by_ns) for rank in range(len(self.ranks))])

    @property
    def caused_by_late_rank_ns(self) -> int:
        """How much earlier collectives would start if the late rank came when the others do, and no other sooner.

        They would wait for the last but one.
        """
        return self._later_ns(self.ranks.index(self.late_rank), self.behind_ns)

    def _later_ns(self, rank: int, by_ns: Ints) -> int:
        """How long before this rank came, where it came last; late for several at once it is late once."""
        own = self.last == rank
        came = self.start_ns[rank, own]
        return Intervals.of(came - by_ns[own], came).total_ns

    @property
    def waiting_share(self) -> float:
        """How much of all ranks' time in collectives is waiting."""
        return float(self.waiting_ns.sum() / max(self.spent_ns.sum(), 1))

    @property
    def others(self) -> Mask:
        """One bool a rank: all but the late one, which does not wait."""
        return np.array([rank != self.late_rank for rank in self.ranks])

    @property
    def cost_of_late_rank_ns(self) -> int:
        """How much earlier collectives would start if the last rank came when the middle one does."""
        return int(self.caused_ns.sum())


def _not_twice(begun: Ints, ended: Ints) -> Ints:
    """How long each of these pieces lasts beyond all that began before it."""
    order = np.argsort(begun, kind="stable")
    reach = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, ended[order]))[:-1]
    own = np.empty_like(begun)
    own[order] = np.maximum(ended[order] - np.maximum(begun[order], reach), 0)
    return own


@once_per_run
def skew(run: Run, *, with_uneven: bool = False, everywhere: bool = False) -> Skew | None:
    """Collectives matched across ranks inside the windows; None with one rank, or where they do not match.

    `with_uneven`: also those in which the ranks are known to have loads of different size, who do not end together.
    `everywhere`: also those outside the windows, of ranks that recorded equally many, or whose rhythms agree.
    """
    places = [place for place in run.places if len(place.collectives)]
    if len(places) < 2 or len({place.rank for place in places}) != len(places):
        return None
    joined, kinds = rows_of_collectives(places, everywhere=everywhere)
    if not with_uneven:
        even = _are_even(places, joined)
        joined, kinds = joined[:, even], tuple(kind for kind, kept in zip(kinds, even.tolist(), strict=True) if kept)
    if not joined.shape[1]:
        return None
    start, end = (column(places, joined, edge) for edge in ("start_ns", "end_ns"))
    took = np.where(joined != UNKNOWN, _ended_together(places, joined, start, end) - start, UNKNOWN)
    return Skew(tuple(place.rank for place in places), start, took, joined, kinds)


def _are_even(places: Sequence[Place], rows: Matrix) -> Mask:
    """One bool a collective: do all ranks that take part have about the same load, or is that unknown?"""
    sizes = column(places, rows, "bytes")
    smallest = np.where(sizes == UNKNOWN, np.iinfo(np.int64).max, sizes).min(axis=0)
    even: Mask = sizes.max(axis=0) <= _EVEN * smallest
    return even


def _ended_together(places: Sequence[Place], rows: Matrix, start: Matrix, end: Matrix) -> Matrix:
    """When each collective ended, on each rank's clock: where host threads send and have one clock, for all at once.

    They have one where nobody was through before the last had come, and where the ends on a rank are no further from
    those on the first than they scatter: a clock that differs would move all of them.
    """
    if any(place.device is not None for place in places) or (rows == UNKNOWN).any():
        return end
    apart = end - end[0]
    usual = np.median(apart, axis=1, keepdims=True)
    scatter = np.median(np.abs(apart - usual), axis=1, keepdims=True)
    if (start.max(axis=0) > end.min(axis=0)).any() or (np.abs(usual) > scatter).any():
        return end
    return np.broadcast_to(np.rint(end.mean(axis=0)).astype(np.int64), end.shape)
