"""Who waits for whom at collectives, among the ranks that were recorded?

A collective ends for all ranks together, so the rank that is in it for the shortest time came last, and the others'
extra time is waiting. That needs no common clock. Threads of the host that send (gloo) end together only as soon as
each gets a core, which is milliseconds on a busy machine: where the clocks of such ranks agree, who came last is read
from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.communication.matching import Arrivals, Matrix, arrivals, by_place, column
from perfdoctor.metrics.communication.messages import MESSAGE
from perfdoctor.model.cache import once_per_job
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Job
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask

#: The rank with the smallest part of an uneven all-to-all is done first, and was not late for that.
_EVEN = 1.1


class Skew(Struct, frozen=True, eq=False, dict=True):
    """When the ranks came to matched collectives, and how long they were in them: one element an arrival.

    `came` says which rank (its place in `ranks`) and which collective; `began_ns` is by the rank's own clock.
    """

    ranks: tuple[int, ...]
    came: Arrivals
    began_ns: Ints
    took_ns: Ints

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each collective."""
        return self.came.kinds

    def of(self, collectives: Mask) -> Skew:
        """The skew of these collectives alone; `collectives` has one bool each."""
        kept = collectives[self.came.collective]
        return Skew(self.ranks, self.came.of(collectives), self.began_ns[kept], self.took_ns[kept])

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {rank: number for number, rank in enumerate(self.ranks)}

    def has(self, rank: int) -> bool:
        """Is it one of `ranks`?"""
        return rank in self._numbers

    def number(self, rank: int) -> int:
        """The place of this rank in `ranks`."""
        return self._numbers[rank]

    @cached_property
    def _of_rank(self) -> list[Ints]:
        """Each rank's arrivals."""
        return by_place(self.came.place, len(self.ranks))

    def rows_of(self, rank: int) -> Ints:
        """Its rows of the place's `recorded_collectives`, by collective. `rank` is the place in `ranks`."""
        return self.came.row[self._of_rank[rank]]

    def last_rows_of(self, rank: int) -> Ints:
        """Its rows of `recorded_collectives` at which it came last. `rank` is the place in `ranks`."""
        own = self._of_rank[rank]
        rows: Ints = self.came.row[own[self.last[self.came.collective[own]] == rank]]
        return rows

    @cached_property
    def has_several_groups(self) -> bool:
        """Are there collectives in which not all ranks take part?"""
        return bool((self.members < len(self.ranks)).any())

    # --- a line a rank, a column a collective: for jobs of which every rank was read in full ---

    def matrix(self, values: Ints) -> Matrix:
        """One value an arrival as `matrix[rank, collective]`; UNKNOWN where the rank takes no part."""
        result = np.full((len(self.ranks), len(self.kinds)), UNKNOWN, np.int64)
        result[self.came.place, self.came.collective] = values
        return result

    @cached_property
    def duration_ns(self) -> Matrix:
        return self.matrix(self.took_ns)

    @cached_property
    def rows(self) -> Matrix:
        return self.matrix(self.came.row)

    @cached_property
    def taking_part(self) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """One bool a rank and collective: is the rank in its group?"""
        there: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = self.rows != UNKNOWN
        return there

    @cached_property
    def waited_ns(self) -> Matrix:
        """`waits_ns` as a matrix; 0 where a rank takes no part."""
        return np.maximum(self.matrix(self.waits_ns), 0)

    # --- collectives ---

    @cached_property
    def _by_duration(self) -> Ints:
        """The arrivals by collective, and of each the one that came last first."""
        return np.lexsort((self.took_ns, self.came.collective))

    @cached_property
    def _edges(self) -> Ints:
        """Where the arrivals of each collective begin, and the end."""
        return np.searchsorted(self.came.collective, np.arange(len(self.kinds) + 1))

    @cached_property
    def members(self) -> Ints:
        """Per collective: how many ranks take part."""
        return np.diff(self._edges)

    def members_of(self, collective: int) -> Ints:
        """The ranks (their places in `ranks`) that take part in this collective."""
        return self.came.place[self._edges[collective] : self._edges[collective + 1]]

    def rows_at(self, collectives: Ints) -> Matrix:
        """The rows of collectives of the same ranks, a line a rank."""
        return np.stack([self.came.row[self._edges[each] : self._edges[each + 1]] for each in collectives], axis=1)

    def largest(self, values: Ints) -> Ints:
        """Per collective the largest of these, one an arrival."""
        return np.maximum.reduceat(values, self._edges[:-1])

    def _nth_ns(self, nth: Ints | int) -> Ints:
        """Per collective the n-th shortest duration."""
        nth_ns: Ints = self.took_ns[self._by_duration[self._edges[:-1] + nth]]
        return nth_ns

    @cached_property
    def shortest_ns(self) -> Ints:
        """Per collective: from the arrival of the last rank to the end, which is the transfer."""
        return self._nth_ns(0)

    @cached_property
    def last(self) -> Ints:
        """Per collective: which of `ranks` (its place there) came last."""
        return self.came.place[self._by_duration[self._edges[:-1]]]

    @cached_property
    def late_by_ns(self) -> Ints:
        """Per collective: how much the last rank came after the middle one; of two, after the other."""
        # The two in the middle, or one twice.
        middle = np.mean([self._nth_ns((self.members - 1) >> 1), self._nth_ns(self.members >> 1)], axis=0)
        before = np.where(self.members > 2, middle, self._nth_ns(1))
        return (before - self.shortest_ns).astype(np.int64)

    @cached_property
    def behind_ns(self) -> Ints:
        """Per collective: how much the last rank came after the last but one, who would be waited for instead."""
        return self._nth_ns(1) - self.shortest_ns

    # --- ranks ---

    @cached_property
    def _ahead_ns(self) -> Ints:
        """Per arrival: how long before the last one."""
        return self.took_ns - self.shortest_ns[self.came.collective]

    @cached_property
    def spent_ns(self) -> Ints:
        """Per rank: how long it stood in collectives; in several at once, once."""
        return np.array([self._standing(own, self.took_ns[own]).total_ns for own in self._of_rank])

    @cached_property
    def waits_ns(self) -> Ints:
        """Per arrival: how long it waited there for the last rank, and not in an earlier collective already."""
        waited = np.zeros_like(self.took_ns)
        for own in self._of_rank:
            waited[own] = _not_twice(self.began_ns[own], self.began_ns[own] + self._ahead_ns[own])
        return waited

    @cached_property
    def waiting_ns(self) -> Ints:
        """Per rank: how long it stood in collectives that the last rank had not entered yet."""
        waiting = np.zeros(len(self.ranks), np.int64)
        np.add.at(waiting, self.came.place, self.waits_ns)
        return waiting

    def waits(self, rank: int, at_most_ns: Ints | None = None) -> Intervals:
        """When this rank waited, by its own clock. `at_most_ns`: by collective, only so long before the last one came.

        `rank` is the place in `ranks`.
        """
        own = self._of_rank[rank]
        waited = self._ahead_ns[own]
        piece = waited if at_most_ns is None else np.minimum(waited, at_most_ns[self.came.collective[own]])
        return self._standing(own, piece, waited - piece)

    def _standing(self, own: Ints, lasts_ns: Ints, later_ns: Ints | int = 0) -> Intervals:
        """When a rank stood in these arrivals for so long, from `later_ns` behind their begin on."""
        begun = self.began_ns[own] + later_ns
        return Intervals.of(begun, begun + lasts_ns)

    @property
    def transfer_ns(self) -> int:
        """How long the collectives took once everybody was there."""
        return int(self.shortest_ns.sum())

    @property
    def late_rank(self) -> int:
        """The rank the others wait for most; among equals the one that waits least itself."""
        return self.ranks[int(np.lexsort((self.waiting_ns, -self.caused_ns))[0])]

    @cached_property
    def caused_ns(self) -> Ints:
        """Per rank: by how much it came after the middle rank, in the collectives in which it came last.

        Weighed so, ranks that come together but for some ns do not count as late by turns.
        """
        return np.array([self._later_ns(own, self.late_by_ns) for own in self._last_of_rank])

    def caused_alone_ns(self, rank: int) -> int:
        """How much earlier collectives would start if this rank came when the others do, and no other sooner.

        They would wait for the last but one.
        """
        return self._later_ns(self._last_of_rank[self.number(rank)], self.behind_ns)

    @cached_property
    def _last_of_rank(self) -> list[Ints]:
        """For each rank the collectives in which it came last."""
        return by_place(self.last, len(self.ranks))

    def _later_ns(self, own: Ints, by_ns: Ints) -> int:
        """How long before a rank came, where it came last; late for several at once it is late once."""
        came = self.began_ns[self._by_duration[self._edges[own]]]
        return Intervals.of(came - by_ns[own], came).total_ns

    @property
    def waiting_share(self) -> float:
        """How much of all ranks' time in collectives is waiting."""
        return float(self.waiting_ns.sum() / max(self.spent_ns.sum(), 1))


def _not_twice(begun: Ints, ended: Ints) -> Ints:
    """How long each of these pieces lasts beyond all that began before it."""
    order = np.argsort(begun, kind="stable")
    reach = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, ended[order]))[:-1]
    own = np.empty_like(begun)
    own[order] = np.maximum(ended[order] - np.maximum(begun[order], reach), 0)
    return own


@once_per_job
def skew(
    run: Job[JobPlace], *, with_uneven: bool = False, everywhere: bool = False, with_messages: bool = False
) -> Skew | None:
    """Collectives matched across ranks inside the windows; None with one rank, or where they do not match.

    `with_uneven`: also those in which the ranks are known to have loads of different size, who do not end together.
    `everywhere`: also those outside the windows, of ranks that recorded equally many, or whose rhythms agree.
    `with_messages`: also sends and receives, each a meeting of two.
    """
    places = [place for place in run.places if len(place.collectives)]
    if len(places) < 2 or len({place.rank for place in places}) != len(places):
        return None
    came = arrivals(places, everywhere=everywhere, with_messages=with_messages)
    if not with_uneven:
        came = came.of(_are_even(places, came))
    if not came.kinds:
        return None
    start, end = (column(places, came, edge) for edge in ("start_ns", "end_ns"))
    took = _ended_together(places, came, start, end) - start
    return Skew(tuple(place.rank for place in places), came, start, took)


def waits_for_stages(run: Job[JobPlace], place: JobPlace) -> Intervals:
    """When a place waited in a send or receive for the other end to come: until then there is nothing to transfer."""
    matched = skew(run, with_messages=True)
    if matched is None or not matched.has(place.rank):
        return Intervals.empty()
    of_messages = matched.of(np.array(matched.kinds) == MESSAGE)
    return of_messages.waits(of_messages.number(place.rank)) if of_messages.kinds else Intervals.empty()


def _are_even(places: Sequence[JobPlace], came: Arrivals) -> Mask:
    """One bool a collective: do all ranks that take part have about the same load, or is that unknown?"""
    if not came.kinds:
        return np.empty(0, dtype=bool)
    sizes = column(places, came, "bytes")
    first = np.searchsorted(came.collective, np.arange(len(came.kinds)))
    smallest = np.minimum.reduceat(np.where(sizes == UNKNOWN, np.iinfo(np.int64).max, sizes), first)
    return np.maximum.reduceat(sizes, first) <= _EVEN * smallest


def _ended_together(places: Sequence[JobPlace], came: Arrivals, start: Ints, end: Ints) -> Ints:
    """When each collective ended, on each rank's clock: where host threads send and have one clock, for all at once.

    They have one where nobody was through before the last had come, and where the ends on a rank are no further from
    those on the first than they scatter: a clock that differs would move all of them.
    """
    ranks = len(places)
    if any(place.device is not None for place in places) or start.size != ranks * len(came.kinds):
        return end
    starts, ends = start.reshape(-1, ranks).T, end.reshape(-1, ranks).T
    apart = ends - ends[0]
    usual = np.median(apart, axis=1, keepdims=True)
    scatter = np.median(np.abs(apart - usual), axis=1, keepdims=True)
    if (starts.max(axis=0) > ends.min(axis=0)).any() or (np.abs(usual) > scatter).any():
        return end
    return np.repeat(np.rint(ends.mean(axis=0)).astype(np.int64), ranks)
