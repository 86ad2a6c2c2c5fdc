"""In which order do slices begin and end, and which cannot share a track?

On one track slices nest: what begins last ends first. Rows that overlap without nesting (concurrent kernels in one
stream, ranges started and ended out of order) go to further lanes.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from perfdoctor.model.timeline import Ints, Mask

#: Order at one moment: first ends, then begins, then slices without duration, which do both.
_ENDS, _BEGINS, _BOTH = 0, 1, 2


class Slices(Struct, frozen=True):
    """Rows of one track in any order, as arrays of equal length; times in ns.

    `level`: of rows with the same times, the lower is outside. `name` and `category` are ids of interned names, `args`
    of interned arguments (UNKNOWN: none), `flow` of an arrow (0: none).
    """

    start_ns: Ints
    end_ns: Ints
    level: Ints
    name: Ints
    category: Ints
    args: Ints
    flow: Ints

    def __len__(self) -> int:
        return int(self.start_ns.size)

    def take(self, rows: Ints | Mask) -> Slices:
        return Slices(*(column[rows] for column in astuple(self)))

    @staticmethod
    def join(parts: list[Slices]) -> Slices:
        if len(parts) == 1:
            return parts[0]
        return Slices(*map(np.concatenate, zip(*map(astuple, parts), strict=True)))

    def outside_in(self) -> Slices:
        """Sorted so that a row comes after all that contain it."""
        return self.take(np.lexsort((self.level, -self.end_ns, self.start_ns)))


class SliceEdges(Struct, frozen=True):
    """Begins and ends of slices in the order of the file. `row`: which slice."""

    at_ns: Ints
    row: Ints
    is_begin: Mask

    def part(self, begin: int, until: int) -> SliceEdges:
        return SliceEdges(self.at_ns[begin:until], self.row[begin:until], self.is_begin[begin:until])


def edges(slices: Slices) -> SliceEdges:
    """The begins and ends of rows that are sorted `outside_in`."""
    count = len(slices)
    row = np.tile(np.arange(count), 2)
    is_begin = np.repeat((True, False), count)
    at = np.concatenate((slices.start_ns, slices.end_ns))
    turn = np.where(is_begin, _BEGINS, _ENDS)
    turn[np.tile(slices.end_ns == slices.start_ns, 2)] = _BOTH
    inside_out = np.where(turn == _ENDS, count - 1 - row, row)
    order = np.lexsort(((turn * count + inside_out) * 2 + ~is_begin, at))
    return SliceEdges(at[order], row[order], is_begin[order])


def lanes(slices: Slices) -> list[Slices]:
    """The rows on as many lanes as they need, each sorted and properly nested; the first has all that nests."""
    rows = slices.outside_in()
    if _is_nested(rows):
        return [rows]
    lane = _lane_of_each(rows)
    return [rows.take(lane == each) for each in range(int(lane.max()) + 1)]


def _is_nested(rows: Slices) -> bool:
    """Does each row end when it is the innermost one that is open?"""
    found = edges(rows)
    depth = np.cumsum(np.where(found.is_begin, 1, -1))
    depth[found.is_begin] -= 1
    # At one depth begins and ends alternate, so each end follows the begin that it closes.
    by_depth = found.row[np.argsort(depth, kind="stable")]
    return bool((by_depth[0::2] == by_depth[1::2]).all())


def _lane_of_each(rows: Slices) -> Ints:
    """The first lane whose innermost open row contains the new one, or that has none open."""
    lane = np.empty(len(rows), np.int64)
    open_until: list[list[int]] = []
    for row, (start, end) in enumerate(zip(rows.start_ns.tolist(), rows.end_ns.tolist(), strict=True)):
        number = next((each for each, stack in enumerate(open_until) if _fits(stack, start, end)), len(open_until))
        if number == len(open_until):
            open_until.append([])
        lane[row] = number
        open_until[number].append(end)
    return lane


def _fits(open_until: list[int], start: int, end: int) -> bool:
    """Does the innermost open row of the lane, if any, contain the new row?"""
    while open_until and open_until[-1] <= start:
        open_until.pop()
    return not open_until or open_until[-1] >= end
