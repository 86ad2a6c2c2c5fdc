"""Who waits for whom at collectives, among the ranks that were recorded?

A collective ends for all ranks together, so the rank that is in it for the shortest time came last, and the others'
extra time is waiting. That needs no common clock. Collectives are matched by their order within kind and group. Where
the ranks recorded unequally many, the rhythm of their ends shows which belong together: it is the same on every rank.
A send or receive may end for one rank alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from perfdoctor.model.cache import once_per_run
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask

#: Kinds in which every rank takes part and that end together. The root of a broadcast is done once its bytes are on
#: their way, and of a reduce the others are: who is out first did not come last.
_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")

#: The rank with the smallest part of an uneven all-to-all is done first, and was not late for that.
_EVEN = 1.1

#: Ranks whose recordings begin at different moments are put together by at least so many collectives,
_FEWEST_ALIKE = 6
#: whose ends are as far apart on one as on the other, but for this share of the usual distance.
_RHYTHM_SLACK = 0.02

Matrix = np.ndarray[tuple[int, int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Skew:
    """Times of matched collectives: `duration_ns[i, k]` is collective k on the i-th of `ranks`.

    UNKNOWN stands where a rank is not in the collective's group. `rows[i, k]` is its row of the rank's
    `recorded_collectives`; `kinds` has the kind of each collective.
    """

    ranks: tuple[int, ...]
    duration_ns: Matrix
    rows: Matrix = field(default_factory=lambda: np.empty((0, 0), np.int64))
    kinds: tuple[str, ...] = ()

    @property
    def taking_part(self) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """One bool a rank and collective: is the rank in its group?"""
        known: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = self.duration_ns != UNKNOWN
        return known

    @property
    def shortest_ns(self) -> Ints:
        """Per collective: from the arrival of the last rank to the end, which is the transfer."""
        everybody: Ints = np.where(self.taking_part, self.duration_ns, np.iinfo(np.int64).max).min(axis=0)
        return everybody

    @property
    def spent_ns(self) -> Ints:
        """Per rank: how long it stood in collectives."""
        spent: Ints = np.where(self.taking_part, self.duration_ns, 0).sum(axis=1)
        return spent

    @property
    def waiting_ns(self) -> Ints:
        """Per rank: how long it stood in collectives that the last rank had not entered yet."""
        waiting: Ints = np.where(self.taking_part, self.duration_ns - self.shortest_ns, 0).sum(axis=1)
        return waiting

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

    @property
    def late_by_ns(self) -> Ints:
        """Per collective: how much the last rank came after the middle one."""
        middle = np.nanmedian(np.where(self.taking_part, self.duration_ns.astype(float), np.nan), axis=0)
        return (middle - self.shortest_ns).astype(np.int64)

    @property
    def caused_ns(self) -> Ints:
        """Per rank: by how much it came after the middle rank, in the collectives in which it came last.

        Weighed so, ranks that come together but for some ns do not count as late by turns.
        """
        caused = np.bincount(self.last, weights=self.late_by_ns, minlength=len(self.ranks))
        return caused.astype(np.int64)

    @property
    def caused_by_late_rank_ns(self) -> int:
        """How much earlier collectives would start if the late rank came when the middle one does, and no other sooner.

        They would wait for the last but one, in the collectives at which that comes behind the middle one.
        """
        durations = np.where(self.taking_part, self.duration_ns, np.iinfo(np.int64).max)
        behind = np.sort(durations, axis=0)[1] - self.shortest_ns
        own = self.last == self.ranks.index(self.late_rank)
        return int(np.minimum(behind, self.late_by_ns)[own].sum())

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


@once_per_run
def skew(run: Run, *, with_uneven: bool = False, everywhere: bool = False) -> Skew | None:
    """Collectives matched across ranks inside the windows; None with one rank, or where they do not match.

    `with_uneven`: also those in which the ranks are known to have loads of different size, who do not end together.
    `everywhere`: also those outside the windows, of ranks that recorded equally many, or whose rhythms agree.
    """
    places = [place for place in run.places if len(place.collectives)]
    if len(places) < 2 or len({place.rank for place in places}) != len(places):
        return None
    found = [_collectives(place) for place in places]
    rows: list[Matrix] = []
    kinds: list[str] = []
    for kind, group, size in dict.fromkeys(key for each in found for key in each):
        own = [each.get((kind, group, size)) for each in found]
        if 0 < size < sum(each is not None for each in own):
            continue  # several groups under one name
        matched = _matched(own, everybody=not group, everywhere=everywhere)
        rows.append(matched)
        kinds.extend([kind] * matched.shape[1])
    joined = np.concatenate(rows, axis=1) if rows else np.empty((len(places), 0), np.int64)
    if not with_uneven:
        even = _are_even(places, joined)
        joined, kinds = joined[:, even], [kind for kind, kept in zip(kinds, even.tolist(), strict=True) if kept]
    if not joined.shape[1]:
        return None
    took = [_took_ns(place, joined[number]) for number, place in enumerate(places)]
    return Skew(tuple(place.rank for place in places), np.stack(took), joined, tuple(kinds))


def _are_even(places: Sequence[Place], rows: Matrix) -> Mask:
    """One bool a collective: do all ranks that take part have about the same load, or is that unknown?"""
    known = [p.recorded_collectives["bytes"][np.maximum(own, 0)] for p, own in zip(places, rows, strict=True)]
    sizes = np.where(rows != UNKNOWN, np.stack(known), UNKNOWN)
    smallest = np.where(sizes == UNKNOWN, np.iinfo(np.int64).max, sizes).min(axis=0)
    even: Mask = sizes.max(axis=0) <= _EVEN * smallest
    return even


def _took_ns(place: Place, rows: Ints) -> Ints:
    known: Ints = np.where(rows != UNKNOWN, place.recorded_collectives.duration_ns[np.maximum(rows, 0)], UNKNOWN)
    return known


@dataclass(frozen=True)
class _Own:
    """One rank's collectives of one kind and group, in order: their rows, their ends, does each touch the window?"""

    rows: Ints
    inside: Mask
    end_ns: Ints

    def take(self, places: Ints) -> _Own:
        return _Own(self.rows[places], self.inside[places], self.end_ns[places])


def _matched(ranks: Sequence[_Own | None], *, everybody: bool, everywhere: bool) -> Matrix:
    """The rows of one kind and group, a line a rank: those that most ranks have in their window, or all of them.

    Matched over the whole recording, since a collective may reach over the edge of a window on one rank only; within
    the windows where the recordings do not hold equally many. A group without a name has to be that of all ranks.
    """
    nothing = np.empty((len(ranks), 0), np.int64)
    known = [own for own in ranks if own is not None]
    if len(known) < 2 or (everybody and len(known) < len(ranks)):
        return nothing
    if len({own.rows.size for own in known}) > 1:
        inside_only = [own.take(np.flatnonzero(own.inside)) for own in known]
        known = inside_only if len({own.rows.size for own in inside_only}) == 1 else _aligned(known)
    if not known:
        return nothing
    inside = np.mean([own.inside | everywhere for own in known], axis=0) >= 0.5
    result = np.full((len(ranks), int(inside.sum())), UNKNOWN, np.int64)
    result[[own is not None for own in ranks]] = np.stack([own.rows for own in known])[:, inside]
    return result


def _aligned(ranks: Sequence[_Own]) -> list[_Own]:
    """The collectives that all ranks recorded, equally many of each; [] where their rhythms do not agree."""
    reference = min(ranks, key=lambda own: own.rows.size)
    offsets = [_offset(own.end_ns, reference.end_ns) for own in ranks]
    if any(offset is None for offset in offsets):
        return []
    shifts = [offset or 0 for offset in offsets]
    first = max(-shift for shift in shifts)
    last = min(own.rows.size - shift for own, shift in zip(ranks, shifts, strict=True))
    return [own.take(np.arange(first + shift, last + shift)) for own, shift in zip(ranks, shifts, strict=True)]


def _offset(ends: Ints, reference: Ints) -> int | None:
    """Collective n of `reference` is n + offset of `ends`: where the distances between ends agree best, and well.

    None where they agree nowhere, or as well at another offset (steps that are too much alike).
    """
    fewest = max(_FEWEST_ALIKE, reference.size // 2)
    scores: dict[int, float] = {}
    for offset in range(fewest - reference.size, ends.size - fewest + 1):
        first, last = max(0, -offset), min(reference.size, ends.size - offset)
        if last - first >= fewest:
            apart = np.abs(np.diff(ends[first + offset : last + offset]) - np.diff(reference[first:last]))
            scores[offset] = float(np.median(apart))
    ranked = sorted(scores, key=lambda offset: scores[offset])
    allowed_ns = _RHYTHM_SLACK * float(np.median(np.diff(reference))) if reference.size > 1 else 0.0
    if not ranked or scores[ranked[0]] > allowed_ns:
        return None
    return None if len(ranked) > 1 and scores[ranked[1]] <= 2 * scores[ranked[0]] else ranked[0]


def _collectives(place: Place) -> dict[tuple[str, str, int], _Own]:
    """The recording's rows by kind, group and its size (or UNKNOWN), in order; do they touch the window?"""
    frame = place.recorded_collectives
    kinds, groups = frame.text("kind"), frame.text("group")
    inside = place.window.overlap_ns(frame.start_ns, frame.end_ns) > 0
    sizes = frame["group_size"]
    found: dict[tuple[str, str, int], _Own] = {}
    for kind in _TOGETHER:
        of_kind = kinds.equals(kind)
        for group in dict.fromkeys(groups.take(of_kind)):
            of_group = of_kind & groups.equals(group)
            for size in np.unique(sizes[of_group]).tolist():
                rows = np.flatnonzero(of_group & (sizes == size))
                found[kind, group, size] = _Own(rows, inside[rows], frame.end_ns[rows])
    return found
