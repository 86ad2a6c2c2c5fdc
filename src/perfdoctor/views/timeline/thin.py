"""Which events are drawn one by one, and which are merged, so that a long run fits into a page?

In the typical step and around the moments of findings nothing is merged. Elsewhere time is divided into cells of length
t: neighbours in one row that start in the same cell and are shorter than t (and so less than t apart) become one piece
with their number and summed duration. Nothing is dropped: counts and durations add up to those of all events. t is as
short as the budget allows, and the same for all tracks, so that all are equally detailed at any zoom. If the typical
step alone exceeds the budget, it has a shorter t of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from perfdoctor.late import dataclass
from perfdoctor.model.columns import Floats, Ints, Mask
from perfdoctor.model.intervals import Intervals
from perfdoctor.views.timeline.lanes import Lane, order

TimeSpan = tuple[int, int]

#: The packed size of one event, as measured on the recordings with the least regular times; and of merged events, which
#: also have a count and a duration.
LONE_BYTES = 11
JOINED_BYTES = 17

#: Spans without merged events may take this share of the budget; the rest is for all other steps.
_WHOLE_SHARE = 0.6
#: Candidates for t in ns: powers of two, which are fast to try, and some between each and the next for a closer fit.
_BETWEEN = 4
_CELLS = tuple(round(2 ** (n / _BETWEEN)) for n in range(_BETWEEN * 62 + 1))


@dataclass(frozen=True)
class Thinned:
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


@dataclass(frozen=True)
class _Pieces:
    """All pieces of all lanes, by lane and row, then by start. `line` numbers the rows of all lanes.

    `lanes` has each lane's order of its pieces, `edges` the index of its first piece, and the end of the last lane.
    """

    line: Ints
    start: Ints
    end: Ints
    lanes: Sequence[Ints]
    edges: Ints

    def __len__(self) -> int:
        return int(self.start.size)

    @property
    def duration(self) -> Ints:
        return self.end - self.start

    def overlapping(self, span: TimeSpan) -> Mask:
        found: Mask = (self.start < span[1]) & (self.end > span[0])
        return found


@dataclass(frozen=True)
class _Pairs:
    """Neighbours that may be merged: the second of each pair, both starts, and the t above which they are merged."""

    second: Ints
    first_start: Ints
    second_start: Ints
    above_ns: Ints

    def joined(self, cell_ns: int) -> Ints:
        """The second pieces of the pairs that are merged."""
        at = np.flatnonzero(self.above_ns < cell_ns)
        first, second = self.first_start[at], self.second_start[at]
        if cell_ns & (cell_ns - 1) == 0:  # a shift is several times as fast as a division
            shift = cell_ns.bit_length() - 1
            same: Mask = first >> shift == second >> shift
        else:
            same = first // cell_ns == second // cell_ns
        found: Ints = self.second[at[same]]
        return found


def thinned(
    lanes: Sequence[Lane], budget_bytes: int, typical: TimeSpan, moments: Sequence[TimeSpan] = ()
) -> tuple[list[Thinned], Intervals]:
    """All lanes within a budget (see LONE_BYTES), and the spans in which no events are merged.

    The budget is exceeded only if there are more rows than it has room for pieces: each row keeps one.
    """
    pieces = _joined(lanes)
    if len(pieces) * LONE_BYTES <= budget_bytes:
        last = max(int(pieces.end.max(initial=0)), typical[1], 1)
        return _apart(lanes, pieces, np.arange(len(pieces))), Intervals.single(0, last)
    for_whole = int(_WHOLE_SHARE * budget_bytes)
    whole, held = _whole(pieces, [typical, *moments], for_whole // LONE_BYTES)
    is_fine = np.zeros(len(pieces), dtype=bool)
    if Intervals.single(*typical) - whole:
        is_fine = pieces.overlapping(typical)
    fine, coarse = _pairs(pieces, whole, is_fine, typical)
    of_typical = int(is_fine.sum())
    ones = np.empty(0, np.int64)
    if of_typical:
        room = max(for_whole, budget_bytes - (len(pieces) - of_typical) * LONE_BYTES)
        room -= int((held & ~is_fine).sum()) * LONE_BYTES
        ones = _shortest(fine, lambda seconds: _bytes(of_typical, seconds) <= room)
    room = budget_bytes - _bytes(of_typical, ones)
    others = _shortest(coarse, lambda seconds: _bytes(len(pieces) - of_typical, seconds) <= room)
    begins = np.ones(len(pieces), dtype=bool)
    begins[ones] = begins[others] = False
    return _apart(lanes, pieces, np.flatnonzero(begins)), whole


def _bytes(pieces: int, seconds: Ints) -> int:
    """The packed size of pieces if these of them are merged with the one before."""
    groups = int((np.diff(seconds) > 1).sum()) + 1 if seconds.size else 0
    return (pieces - seconds.size - groups) * LONE_BYTES + groups * JOINED_BYTES


def _shortest(pairs: _Pairs, fits: Callable[[Ints], bool]) -> Ints:
    """The pieces to merge with the shortest t that fits; with the longest t if none fits."""
    low, high = 0, len(_CELLS) // _BETWEEN
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(pairs.joined(_CELLS[middle * _BETWEEN])) else (middle + 1, high)
    for finer in range(max(low - 1, 0) * _BETWEEN + 1, low * _BETWEEN):
        seconds = pairs.joined(_CELLS[finer])
        if fits(seconds):
            return seconds
    return pairs.joined(_CELLS[low * _BETWEEN])


def _joined(lanes: Sequence[Lane]) -> _Pieces:
    """The pieces of all lanes in one array."""
    orders = [order(lane.row) for lane in lanes]
    rows = np.cumsum([0, *(int(lane.row.max(initial=-1)) + 1 for lane in lanes)]).tolist()
    none = [np.empty(0, np.int64)]
    start = np.concatenate([lane.start_ns[at] for lane, at in zip(lanes, orders, strict=True)] or none)
    duration = np.concatenate([lane.duration_ns[at] for lane, at in zip(lanes, orders, strict=True)] or none)
    line = np.concatenate([lane.row[at] + row for lane, at, row in zip(lanes, orders, rows, strict=False)] or none)
    return _Pieces(line, start, start + duration, orders, np.cumsum([0, *(len(lane) for lane in lanes)]))


def _whole(pieces: _Pieces, wanted: Sequence[TimeSpan], room: int) -> tuple[Intervals, Mask]:
    """As many of the spans as there is room for, in their order, and which pieces overlap them."""
    chosen, held = Intervals.empty(), np.zeros(len(pieces), dtype=bool)
    for span in wanted:
        with_it = held | pieces.overlapping(span)
        if int(with_it.sum()) <= room:
            chosen, held = chosen | Intervals.single(*span), with_it
    return chosen, held


def _pairs(pieces: _Pieces, whole: Intervals, is_fine: Mask, typical: TimeSpan) -> tuple[_Pairs, _Pairs]:
    """Pairs of neighbours that may be merged: in the same row, both outside `whole`, on the same side of each span.

    Those in the typical step, if it has a t of its own, and the others.
    """
    start, duration = pieces.start, pieces.duration
    free = np.ones(len(pieces), dtype=bool)
    for span in whole:
        free &= ~pieces.overlapping(span)
    between = np.searchsorted(np.sort(np.append(whole.starts, typical[0])), start, side="right")
    same = (pieces.line[1:] == pieces.line[:-1]) & (between[1:] == between[:-1]) & (is_fine[1:] == is_fine[:-1])
    same &= free[1:] & free[:-1]
    above = np.maximum(duration[1:], duration[:-1])

    def those(mask: Mask) -> _Pairs:
        first = np.flatnonzero(mask)
        second = first + 1
        return _Pairs(second, start[first], start[second], above[first])

    return those(same & is_fine[1:]), those(same & ~is_fine[1:])


def _apart(lanes: Sequence[Lane], pieces: _Pieces, begins: Ints) -> list[Thinned]:
    """The pieces of each lane, merged from each of `begins` to the next."""
    count = np.diff(np.append(begins, len(pieces)))
    duration = pieces.duration
    busy = np.add.reduceat(duration, begins) if begins.size else begins
    start, end = pieces.start[begins], pieces.end[begins + count - 1]
    longest = _longest(duration, begins, count)
    edges = np.searchsorted(begins, pieces.edges).tolist()
    found = []
    for number, lane in enumerate(lanes):
        own = edges[number] + np.argsort(start[edges[number] : edges[number + 1]], kind="stable")
        base, of_lane = int(pieces.edges[number]), pieces.lanes[number]
        piece = of_lane[longest[own] - base]
        numbers = lane.values[of_lane] if lane.values.size else lane.values
        values = _highest(numbers, begins[edges[number] : edges[number + 1]] - base)
        found.append(
            Thinned(
                lane, piece, start[own], (end - start)[own], lane.row[piece], count[own], busy[own],
                values[own - edges[number]] if values.size else values,
            )
        )  # fmt: skip
    return found


def _highest(values: Floats, begins: Ints) -> Floats:
    """A counter's highest value from each of `begins` to the next; empty for other tracks."""
    highest: Floats = np.maximum.reduceat(values, begins) if values.size else values
    return highest


def _longest(duration: Ints, begins: Ints, count: Ints) -> Ints:
    """The index of the longest piece of each group."""
    if begins.size == duration.size:
        return begins
    most = np.maximum.reduceat(duration, begins)
    is_longest = np.flatnonzero(duration == np.repeat(most, count))
    found: Ints = is_longest[np.searchsorted(is_longest, begins)]
    return found
