"""Which collectives of several ranks are the same?

Matched by their order within kind and group. Where the ranks recorded unequally many, the rhythm of their ends shows
which belong together: it is the same on every rank. A send or receive may end for one rank alone, and is
matched for those who ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.communication.messages import MESSAGE, messages
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import JobPlace
from perfdoctor.model.timeline import Ints, Mask

#: Kinds in which every rank takes part and that end together. The root of a broadcast is done once its bytes are on
#: their way, and of a reduce the others are: who is out first did not come last.
_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")

#: Ranks whose recordings begin at different moments are put together by at least so many collectives,
_FEWEST_ALIKE = 6
#: whose ends are as far apart on one as on the other, but for this share of the usual distance.
_RHYTHM_SLACK = 0.02
#: Up to so many distances are compared; of more, so many at each offset, and all at the best of these.
_MOST_DISTANCES, _SAMPLED, _CANDIDATES = 4_000_000, 256, 32
#: So many offsets are sampled at once.
_AT_ONCE = 1024

Matrix = np.ndarray[tuple[int, int], np.dtype[np.int64]]


class Arrivals(Struct, frozen=True):
    """Who took part in which collective: one element an arrival of a rank, by collective and then by place.

    `place` is the place in the list of places, `row` its row of `recorded_collectives`; `kinds` has the kind of each
    collective. A job of thousands of ranks has thousands of groups: a matrix of all ranks and collectives would hold
    next to nothing.
    """

    collective: Ints
    place: Ints
    row: Ints
    kinds: tuple[str, ...]

    def of(self, collectives: Mask) -> Arrivals:
        """The arrivals at these collectives alone; `collectives` has one bool each."""
        kept = collectives[self.collective]
        number = np.cumsum(collectives) - 1
        kinds = tuple(kind for kind, is_kept in zip(self.kinds, collectives.tolist(), strict=True) if is_kept)
        return Arrivals(number[self.collective[kept]], self.place[kept], self.row[kept], kinds)


def arrivals(places: Sequence[JobPlace], *, everywhere: bool, with_messages: bool = False) -> Arrivals:
    """Arrivals at the collectives that most of their ranks have in their window; `everywhere`: at all that match.

    `with_messages`: also at sends and receives whose two ends are known.
    """
    found: dict[tuple[str, str, int], dict[int, _Own]] = {}
    for number, place in enumerate(places):
        for key, own in _collectives(place).items():
            found.setdefault(key, {})[number] = own
    for ends, sides in messages(places).items() if with_messages else ():
        key = MESSAGE, "{}->{}".format(*ends), len(ends)
        found[key] = {
            end: _Own.of(places[end], rows) for end, rows in sorted(zip(ends, sides, strict=True), key=itemgetter(0))
        }
    met: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    nothing = np.empty(0, np.int64)
    numbers, of_place, rows, kinds = [nothing], [nothing], [nothing], list[str]()
    for (kind, group, size), own_of in found.items():
        if 0 < size < len(own_of) or len(own_of) < (len(places) if not group else 2):
            continue  # several groups under one name; a group without a name has to be that of all ranks
        matched = _matched(list(own_of.values()), everywhere=everywhere, windows_agree=kind != MESSAGE)
        if kind == MESSAGE:
            matched = _not_both_ways(matched, met.setdefault(tuple(own_of), set()))
        count = matched.shape[1]
        numbers.append(np.repeat(np.arange(len(kinds), len(kinds) + count), len(own_of)))
        of_place.append(np.tile(np.array(list(own_of), np.int64), count))
        rows.append(matched.T.ravel())
        kinds.extend([kind] * count)
    return Arrivals(np.concatenate(numbers), np.concatenate(of_place), np.concatenate(rows), tuple(kinds))


def _not_both_ways(matched: Matrix, met: set[tuple[int, ...]]) -> Matrix:
    """The messages without those whose two kernels have `met` already: one kernel may send and receive at once."""
    pairs = [tuple(each) for each in matched.T.tolist()]
    new: Matrix = matched[:, [pair not in met for pair in pairs]]
    met.update(pairs)
    return new


def column(places: Sequence[JobPlace], of: Arrivals, name: str) -> Ints:
    """A column of each place's `recorded_collectives`, one number an arrival."""
    result = np.empty(of.row.size, np.int64)
    for place, own in zip(places, by_place(of.place, len(places)), strict=True):
        result[own] = place.recorded_collectives[name][of.row[own]]
    return result


def by_place(place: Ints, count: int) -> list[Ints]:
    """For each place which elements are its own, ascending."""
    order = np.argsort(place, kind="stable")
    return np.split(order, np.searchsorted(place[order], np.arange(1, count)))


class _Own(Struct, frozen=True):
    """One rank's collectives of one kind and group, in order: their rows, their ends, does each touch the window?"""

    rows: Ints
    inside: Mask
    end_ns: Ints

    @classmethod
    def of(cls, place: JobPlace, rows: Ints) -> _Own:
        frame = place.recorded_collectives
        inside = place.window.overlap_ns(frame.start_ns[rows], frame.end_ns[rows]) > 0
        return cls(rows, inside, frame.end_ns[rows])

    def take(self, places: Ints) -> _Own:
        return _Own(self.rows[places], self.inside[places], self.end_ns[places])


def _matched(known: Sequence[_Own], *, everywhere: bool, windows_agree: bool) -> Matrix:
    """The rows of one kind and group, a line a rank: those that most ranks have in their window, or all of them.

    Matched over the whole recording, since a collective may reach over the edge of a window on one rank only; within
    the windows where the recordings do not hold equally many. `windows_agree`: do the windows of ranks begin with the
    same ones? Those of the stages of a pipeline do not.
    """
    ranks = len(known)
    if len({own.rows.size for own in known}) > 1:
        inside_only = [own.take(np.flatnonzero(own.inside)) for own in known]
        known = inside_only if windows_agree and len({own.rows.size for own in inside_only}) == 1 else _aligned(known)
    if not known:
        return np.empty((ranks, 0), np.int64)
    inside = np.mean([own.inside | everywhere for own in known], axis=0) >= 0.5
    return np.stack([own.rows for own in known])[:, inside]


def _aligned(ranks: Sequence[_Own]) -> list[_Own]:
    """The collectives that all ranks recorded, equally many of each; [] where their rhythms do not agree."""
    reference = min(ranks, key=lambda own: own.rows.size)
    offsets = [0 if own is reference else _offset(own.end_ns, reference.end_ns) for own in ranks]
    shifts = [offset for offset in offsets if offset is not None]
    if len(shifts) < len(ranks):
        return []
    first = max(-shift for shift in shifts)
    last = min(own.rows.size - shift for own, shift in zip(ranks, shifts, strict=True))
    return [own.take(np.arange(first + shift, last + shift)) for own, shift in zip(ranks, shifts, strict=True)]


def _offset(ends: Ints, reference: Ints) -> int | None:
    """Collective n of `reference` is n + offset of `ends`: where the distances between ends agree best, and well.

    None where they agree nowhere, or as well at another offset (steps that are too much alike).
    """
    fewest = max(_FEWEST_ALIKE, reference.size // 2)
    offsets = np.arange(fewest - reference.size, ends.size - fewest + 1)
    offsets = offsets[_overlap(offsets, ends.size, reference.size)[1] >= fewest]
    own, usual = np.diff(ends), np.diff(reference)
    scores: dict[int, float] = {}
    worth = _worth_comparing(own, usual, offsets)
    for offset, first, length in zip(worth, *_overlap(worth, ends.size, reference.size), strict=True):
        last = first + length - 1
        scores[int(offset)] = float(np.median(np.abs(own[first + offset : last + offset] - usual[first:last])))
    ranked = sorted(scores, key=lambda offset: scores[offset])
    allowed_ns = _RHYTHM_SLACK * float(np.median(usual)) if usual.size else 0.0
    if not ranked or scores[ranked[0]] > allowed_ns:
        return None
    return None if len(ranked) > 1 and scores[ranked[1]] <= 2 * scores[ranked[0]] else ranked[0]


def _overlap(offsets: Ints, ends: int, reference: int) -> tuple[Ints, Ints]:
    """At each offset the first collective of the reference that both have, and how many these are."""
    first = np.maximum(-offsets, 0)
    return first, np.minimum(reference, ends - offsets) - first


def _worth_comparing(own: Ints, usual: Ints, offsets: Ints) -> Ints:
    """The offsets at which distances may agree best: all, or of many those where a sample of distances does.

    At each offset all distances would be compared: of 40,000 collectives 10⁹.
    """
    if offsets.size * usual.size <= _MOST_DISTANCES:
        return offsets
    # Their places are spread by the golden ratio: equal steps would always meet the same collective of a step.
    spread = np.arange(_SAMPLED) * ((5**0.5 - 1) / 2) % 1
    apart = np.empty(offsets.size)
    for begin in range(0, offsets.size, _AT_ONCE):
        some = offsets[begin : begin + _AT_ONCE, None]
        first, length = _overlap(some, own.size + 1, usual.size + 1)
        at = first + (spread * (length - 1)).astype(np.int64)
        apart[begin : begin + _AT_ONCE] = np.median(np.abs(own[at + some] - usual[at]), axis=1)
    best: Ints = offsets[np.argsort(apart, kind="stable")[:_CANDIDATES]]
    return best


@once_per_place
def _collectives(place: JobPlace) -> dict[tuple[str, str, int], _Own]:
    """The place's recorded collectives by kind, group and group size (or UNKNOWN), each in order."""
    frame = place.recorded_collectives
    kinds, groups = frame.text("kind"), frame.text("group_name")
    sizes = frame["group_size"]
    found: dict[tuple[str, str, int], _Own] = {}
    for kind in _TOGETHER:
        of_kind = kinds.equals(kind)
        for group in dict.fromkeys(groups.take(of_kind)):
            of_group = of_kind & groups.equals(group)
            for size in np.unique(sizes[of_group]).tolist():
                rows = np.flatnonzero(of_group & (sizes == size))
                found[kind, group, size] = _Own.of(place, rows)
    return found
