"""Which events are drawn one by one, and which are merged, so that a long run fits into a page?

In the typical step and around the moments of findings nothing is merged. Elsewhere time is divided into cells of length
t: neighbours in one row that start in the same cell and are shorter than t (and so less than t apart) become one piece
with their number and summed duration. Nothing is dropped: counts and durations add up to those of all events. t is as
short as the budget allows, and the same for all tracks, so that all are equally detailed at any zoom. What is longer
than 4 s is never merged. If the typical step alone exceeds the budget, it has a shorter t of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from perfdoctor.model.columns import Floats, Ints, Mask, Whole
from perfdoctor.model.intervals import Intervals
from perfdoctor.views.timeline.lanes import Lane, order

TimeSpan = tuple[int, int]

#: So many pieces are compared together.
_BLOCK = 1 << 18
_NEVER = np.iinfo(np.uint32).max
_MOST_SHORT_LINES = np.iinfo(np.int16).max

#: The packed size of one event, as measured on the recordings with the least regular times; and of merged events, which
#: also have a count and a duration.
LONE_BYTES = 11
JOINED_BYTES = 17

#: Spans without merged events may take this share of the budget; the rest is for all other steps.
_WHOLE_SHARE = 0.6
#: Candidates for t in ns: powers of two, which are fast to try, and some between each and the next for a closer fit.
_BETWEEN = 4
#: No t is longer: of a pair that is never merged.
_ANY_POWER = 64
_CELLS = tuple(round(2 ** (n / _BETWEEN)) for n in range(_BETWEEN * 62 + 1))


class Thinned(Struct, frozen=True):
    """The drawn pieces of one lane, sorted by start. `piece`: the index of the event, of merged ones the longest."""

    lane: Lane
    piece: Ints
    start_ns: Ints
    duration_ns: Ints
    row: Ints
    count: Ints
    busy_ns: Ints
    values: Floats

    def __len__(self) -> int:
        return int(self.piece.size)


class _Pieces(Struct, frozen=True):
    """All pieces of all lanes, by lane and row, then by start. `line` numbers the rows of all lanes.

    Held in few bytes, for there may be ten million: `duration` is uint32 where none is longer than 4 s.
    `edges` has the index of each lane's first piece, and the end of the last lane.
    """

    line: Whole
    start: Ints
    duration: Whole
    edges: Ints

    def __len__(self) -> int:
        return int(self.start.size)

    def overlapping(self, span: TimeSpan) -> Mask:
        found = self.start < span[1]
        for begin, end in _blocks(len(self)):
            found[begin:end] &= self.start[begin:end] + self.duration[begin:end] > span[0]
        return found

    def some(self, begin: int, end: int) -> _Pieces:
        """The pieces from index `begin` to `end`."""
        return _Pieces(self.line[begin:end], self.start[begin:end], self.duration[begin:end], self.edges)

    def take(self, rows: Ints) -> _Pieces:
        return _Pieces(self.line[rows], self.start[rows], self.duration[rows], self.edges)


def _blocks(count: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each block when `count` pieces are taken a few at a time, to save memory."""
    for begin in range(0, count, _BLOCK):
        yield begin, min(begin + _BLOCK, count)


class _Pairs(Struct, frozen=True):
    """Neighbours that may be merged: when each piece starts, and the t above which it is merged with the next one.

    Of a piece that may not be merged with the next one this is never.
    """

    start: Ints
    above_ns: npt.NDArray[np.uint32]

    def sizes(self) -> tuple[Ints, Ints]:
        """Count the pieces merged with the one before, and the groups they form, for t = 1, 2, 4, 8 … ns.

        Two that start in the same cell of 2^k differ in their last k bits alone: the least k of each pair is the length
        of the number in which their starts differ, or of the longer duration. So all t are answered at once.
        """
        joined, groups = np.zeros(_ANY_POWER + 1, np.int64), np.zeros(_ANY_POWER + 1, np.int64)
        last = _ANY_POWER
        for begin, end in _blocks(self.above_ns.size):
            least = np.full(end - begin, _ANY_POWER, np.int32)
            free = np.flatnonzero(self.above_ns[begin:end] < _NEVER)
            differing = self.start[begin + free] ^ self.start[begin + free + 1]
            least[free] = np.frexp(np.maximum(differing, self.above_ns[begin + free]).astype(float))[1]
            before = np.append(last, least[:-1])
            opens = least < before  # a group begins with a pair as long as the one before it is not merged
            joined += np.bincount(least, minlength=joined.size)
            groups += np.bincount(least[opens], minlength=groups.size)
            groups -= np.bincount(before[opens], minlength=groups.size)
            last = int(least[-1])
        return np.cumsum(joined), np.cumsum(groups)

    def joined(self, cell_ns: int) -> Mask:
        """One bool a piece: is it merged with the one before?"""
        joined = np.zeros(self.start.size, dtype=bool)
        above_ns = min(cell_ns, _NEVER)
        for begin, end in _blocks(self.above_ns.size):
            at = np.flatnonzero(self.above_ns[begin:end] < above_ns) + begin
            first, second = self.start[at], self.start[at + 1]
            if cell_ns & (cell_ns - 1) == 0:  # a shift is several times as fast as a division
                shift = cell_ns.bit_length() - 1
                same: Mask = first >> shift == second >> shift
            else:
                same = first // cell_ns == second // cell_ns
            joined[at[same] + 1] = True
        return joined


def thinned(
    lanes: Sequence[Lane], budget_bytes: int, typical: TimeSpan, moments: Sequence[TimeSpan] = ()
) -> tuple[list[Thinned], Intervals]:
    """All lanes within a budget (see LONE_BYTES), and the spans in which no events are merged.

    The budget is exceeded only if there are more rows than it has room for pieces: each row keeps one.
    """
    pieces = _all_of(lanes)
    if len(pieces) * LONE_BYTES <= budget_bytes:
        blocks = (pieces.some(*block) for block in _blocks(len(pieces)))
        last = max(1, typical[1], *(int((some.start + some.duration).max()) for some in blocks))
        return _apart(lanes, pieces, np.arange(len(pieces))), Intervals.single(0, last)
    for_whole = int(_WHOLE_SHARE * budget_bytes)
    whole, held = _whole(pieces, [typical, *moments], for_whole // LONE_BYTES)
    is_fine = np.zeros(len(pieces), dtype=bool)
    if Intervals.single(*typical) - whole:
        is_fine = pieces.overlapping(typical)
    of_typical = int(is_fine.sum())
    joined = np.zeros(len(pieces), dtype=bool)
    if of_typical:
        room = max(for_whole, budget_bytes - (len(pieces) - of_typical) * LONE_BYTES)
        room -= int((held & ~is_fine).sum()) * LONE_BYTES
        rows = np.flatnonzero(is_fine)
        fine = _pairs(pieces.take(rows), whole, typical, np.diff(rows) == 1)
        joined[rows] = _shortest(fine, of_typical, room)
    room = budget_bytes - _bytes(of_typical, joined)
    coarse = _pairs(pieces, whole, typical, ~(is_fine[1:] | is_fine[:-1]))
    others = _shortest(coarse, len(pieces) - of_typical, room)
    return _apart(lanes, pieces, np.flatnonzero(~(joined | others))), whole


def _bytes(pieces: int, joined: Mask) -> int:
    """The packed size of so many pieces if these are merged with the one before."""
    groups = np.count_nonzero(joined[1:] & ~joined[:-1]) + int(joined[:1].any())
    return _packed_bytes(pieces, int(np.count_nonzero(joined)), groups)


def _packed_bytes(pieces: int, joined: int, groups: int) -> int:
    return int((pieces - joined - groups) * LONE_BYTES + groups * JOINED_BYTES)


def _shortest(pairs: _Pairs, pieces: int, room: int) -> Mask:
    """Which of so many pieces to merge with the one before: with the shortest t that fits into `room` bytes, else with
    the longest.
    """
    last = len(_CELLS) // _BETWEEN
    sizes = zip(*(each[: last + 1].tolist() for each in pairs.sizes()), strict=True)
    power = next((power for power, size in enumerate(sizes) if _packed_bytes(pieces, *size) <= room), last)
    for finer in range(max(power - 1, 0) * _BETWEEN + 1, power * _BETWEEN):
        joined = pairs.joined(_CELLS[finer])
        if _bytes(pieces, joined) <= room:
            return joined
    return pairs.joined(_CELLS[power * _BETWEEN])


def _all_of(lanes: Sequence[Lane]) -> _Pieces:
    """The pieces of all lanes in one array."""
    edges = np.cumsum([0, *(len(lane) for lane in lanes)])
    below = np.cumsum([0, *(int(lane.row.max(initial=-1)) + 1 for lane in lanes)])
    line = np.empty(edges[-1], np.int16 if below[-1] <= _MOST_SHORT_LINES else np.int32)
    start, duration = np.empty(edges[-1], np.int64), np.empty(edges[-1], np.uint32)
    for lane, first, last, lines in zip(lanes, edges.tolist(), edges[1:].tolist(), below.tolist(), strict=False):
        at = order(lane.row)
        start[first:last] = lane.start_ns[at]
        took = lane.duration_ns
        if took.max(initial=0) >= np.iinfo(duration.dtype).max:
            duration = duration.astype(np.int64)
        duration[first:last] = took[at]
        line[first:last] = lane.row[at]
        line[first:last] += lines
    return _Pieces(line, start, duration, edges)


def _whole(pieces: _Pieces, wanted: Sequence[TimeSpan], room: int) -> tuple[Intervals, Mask]:
    """Take as many of the `wanted` spans as `room` pieces allow, in their order; also which pieces overlap them."""
    chosen, held = Intervals.empty(), np.zeros(len(pieces), dtype=bool)
    for span in wanted:
        with_it = held | pieces.overlapping(span)
        if int(with_it.sum()) <= room:
            chosen, held = chosen | Intervals.single(*span), with_it
    return chosen, held


def _pairs(pieces: _Pieces, whole: Intervals, typical: TimeSpan, may_be: Mask) -> _Pairs:
    """Pairs of neighbours that may be merged: in the same row, both outside `whole`, on the same side of each span.

    `may_be`: one bool a pair.
    """
    above = np.full(max(len(pieces) - 1, 0), _NEVER, np.uint32)
    sides = np.sort(np.append(whole.starts, typical[0]))
    for begin, end in _blocks(above.size):
        some = pieces.some(begin, end + 1)
        free = np.ones(len(some), dtype=bool)
        for span in whole:
            free &= ~some.overlapping(span)
        between = np.searchsorted(sides, some.start, side="right")
        same = (some.line[1:] == some.line[:-1]) & (between[1:] == between[:-1]) & may_be[begin:end]
        same &= free[1:] & free[:-1]
        longer = np.maximum(some.duration[1:], some.duration[:-1])
        above[begin:end][same] = np.minimum(longer, _NEVER)[same]
    return _Pairs(pieces.start, above)


def _apart(lanes: Sequence[Lane], pieces: _Pieces, begins: Ints) -> list[Thinned]:
    """The pieces of each lane, merged from each of `begins` to the next."""
    edges = np.searchsorted(begins, pieces.edges).tolist()
    found = []
    for number, lane in enumerate(lanes):
        first, last = pieces.edges[number : number + 2].tolist()
        own = begins[edges[number] : edges[number + 1]] - first
        some = pieces.some(first, last)
        count = np.diff(np.append(own, len(some)))
        start, final = some.start[own], own + count - 1
        end = some.start[final] + some.duration[final]
        busy = np.add.reduceat(some.duration, own, dtype=np.int64) if own.size else own
        at = np.argsort(start, kind="stable")
        of_lane = order(lane.row)
        piece = of_lane[_longest(some.duration, own, count)[at]]
        # A counter's highest value in each piece; other tracks have none.
        values = np.maximum.reduceat(lane.values[of_lane], own) if lane.values.size else lane.values
        values = values[at] if values.size else values
        found.append(Thinned(lane, piece, start[at], (end - start)[at], lane.row[piece], count[at], busy[at], values))
    return found


def _longest(duration: Whole, begins: Ints, count: Ints) -> Ints:
    """Index of the longest piece of each group: `begins` has its first piece, `count` its length."""
    if begins.size == duration.size:
        return begins
    most = np.maximum.reduceat(duration, begins)
    is_longest = np.flatnonzero(duration == np.repeat(most, count))
    found: Ints = is_longest[np.searchsorted(is_longest, begins)]
    return found
