"""When was something going on? Sets of half-open pieces of time, and their algebra.

Every question of overlap in perfdoctor is one line of this algebra: exposed communication is
`communication - compute`, idle is `window - (compute | communication | copies)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from perfdoctor.model.columns import Ints

Nanoseconds = Ints
#: Of so few pieces each is cut by itself, which is quicker than a search for each instant.
_FEW = 4
_LEAST = np.iinfo(np.int64).min


def _as_ns(values: npt.ArrayLike) -> Nanoseconds:
    return np.ascontiguousarray(values, dtype=np.int64)


class Intervals:
    """A set of instants, held as half-open `[start, end)` pieces: sorted, disjoint, non-touching, non-empty.

    `starts` and `ends` are int64 nanoseconds of equal length. Build it with `of`, `single` or `empty`, which make the
    pieces canonical; the constructor trusts its caller.
    """

    __slots__ = ("ends", "starts")

    def __init__(self, starts: Nanoseconds, ends: Nanoseconds) -> None:
        self.starts = starts
        self.ends = ends

    @classmethod
    def empty(cls) -> Intervals:
        """The set without any instant.

        Returns:
            The empty set.
        """
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def single(cls, start: int, end: int) -> Intervals:
        """The set of one piece.

        Args:
            start: The first instant, in ns.
            end: The instant behind the last one, in ns.

        Returns:
            The instants of `[start, end)`.
        """
        return cls.of([start], [end])

    @classmethod
    def of(cls, starts: npt.ArrayLike, ends: npt.ArrayLike) -> Intervals:
        """The union of pieces, in any order, overlapping or not.

        Args:
            starts: The start of each piece, in ns.
            ends: The end of each piece, in ns. What ends where or before it starts is empty.

        Returns:
            The set of their instants.
        """
        first, last = _as_ns(starts), _as_ns(ends)
        keep = last > first
        if not keep.all():
            first, last = first[keep], last[keep]
        if first.size == 0:
            return cls.empty()
        if (first[1:] < first[:-1]).any():
            order = np.argsort(first, kind="stable")
            first, last = first[order], last[order]
        reach = np.maximum.accumulate(last)
        opens = np.empty(first.size, dtype=bool)
        opens[0] = True
        np.greater(first[1:], reach[:-1], out=opens[1:])  # touching pieces join: hence > and not >=
        closes = np.append(np.flatnonzero(opens)[1:] - 1, first.size - 1)
        return cls(first[opens], reach[closes])

    @classmethod
    def union(cls, sets: Iterable[Intervals]) -> Intervals:
        """The instants that are in any of these sets."""
        found = cls.empty()
        for each in sets:
            found = found | each
        return found

    def __len__(self) -> int:
        """How many pieces there are.

        Returns:
            The number of pieces.
        """
        return int(self.starts.size)

    def __bool__(self) -> bool:
        """Is any instant in the set?

        Returns:
            False for the empty set.
        """
        return self.starts.size > 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The pieces, one after the other.

        Returns:
            Start and end of each piece, in ns, as Python numbers.
        """
        return zip(self.starts.tolist(), self.ends.tolist(), strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Intervals):
            return NotImplemented
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.ends, other.ends)

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    def __repr__(self) -> str:
        shown = ", ".join(f"[{start}, {end})" for start, end in list(self)[:6])
        return f"Intervals({shown}{', …' if len(self) > 6 else ''})"

    @property
    def total_ns(self) -> int:
        """How long in all."""
        return int((self.ends - self.starts).sum())

    @property
    def durations_ns(self) -> Nanoseconds:
        """How long each piece is: int64, one a piece."""
        return self.ends - self.starts

    def __or__(self, other: Intervals) -> Intervals:
        """The instants in either set.

        Args:
            other: The other set.

        Returns:
            The union.
        """
        if not self:
            return other
        if not other:
            return self
        return Intervals.of(np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends)))

    def __and__(self, other: Intervals) -> Intervals:
        """The instants in both sets.

        Each piece meets a run of consecutive pieces of the other set: two binary searches find it.

        Args:
            other: The other set.

        Returns:
            The intersection.
        """
        if not self or not other:
            return Intervals.empty()
        few, many = (self, other) if len(self) <= len(other) else (other, self)
        if len(few) == 1:
            return many.within(int(few.starts[0]), int(few.ends[0]))
        first = np.searchsorted(many.ends, few.starts, side="right")
        last = np.searchsorted(many.starts, few.ends, side="left")
        counts = np.maximum(last - first, 0)
        one = np.repeat(np.arange(len(few)), counts)
        nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        other_one = np.repeat(first, counts) + nth
        return Intervals(
            np.maximum(few.starts[one], many.starts[other_one]), np.minimum(few.ends[one], many.ends[other_one])
        )

    def __sub__(self, other: Intervals) -> Intervals:
        """The instants in this set and not in the other.

        Args:
            other: The other set.

        Returns:
            The difference.
        """
        if not self or not other:
            return self
        return self & other.complement(int(self.starts[0]), int(self.ends[-1]))

    def complement(self, start_ns: int, end_ns: int) -> Intervals:
        """The instants of a stretch of time that are not in this set.

        Args:
            start_ns: Where the stretch begins, in ns.
            end_ns: Where it ends, in ns.

        Returns:
            The instants of `[start_ns, end_ns)` that are not in this set.
        """
        inside = self.within(start_ns, end_ns)
        starts = np.concatenate((_as_ns([start_ns]), inside.ends))
        ends = np.concatenate((inside.starts, _as_ns([end_ns])))
        keep = ends > starts
        return Intervals(starts[keep], ends[keep])

    def within(self, start_ns: int, end_ns: int) -> Intervals:
        """The part of this set that lies in a stretch of time.

        Args:
            start_ns: Where the stretch begins, in ns.
            end_ns: Where it ends, in ns.

        Returns:
            The instants of this set in `[start_ns, end_ns)`.
        """
        first, last = self.ends.searchsorted(start_ns, "right"), self.starts.searchsorted(end_ns, "left")
        if first >= last or start_ns >= end_ns:
            return Intervals.empty()
        starts, ends = self.starts[first:last].copy(), self.ends[first:last].copy()
        starts[0], ends[-1] = max(starts[0], start_ns), min(ends[-1], end_ns)
        return Intervals(starts, ends)

    def overlap_ns(self, starts: npt.ArrayLike, ends: npt.ArrayLike) -> Nanoseconds:
        """How much of each of these pieces lies in this set.

        Args:
            starts: The start of each piece, in ns. Pieces may have any order and overlap.
            ends: The end of each piece, in ns.

        Returns:
            The time in ns: int64, one a piece.
        """
        if len(self) <= _FEW:
            first, last = _as_ns(starts), _as_ns(ends)
            found = np.zeros(first.shape, np.int64)
            for start, end in self:
                found += np.clip(last, start, end) - np.clip(first, start, end)
            return found
        return self._covered_until(_as_ns(ends)) - self._covered_until(_as_ns(starts))

    def covers(self, instants: Nanoseconds) -> npt.NDArray[np.bool_]:
        """Which of these instants lie in this set?

        Args:
            instants: Instants in ns, an array of any shape.

        Returns:
            One bool an instant, in the same shape.
        """
        if not self:
            return np.zeros(instants.shape, dtype=bool)
        before = np.searchsorted(self.starts, instants, side="right") - 1
        inside: npt.NDArray[np.bool_] = (before >= 0) & (instants < self.ends[np.maximum(before, 0)])
        return inside

    def free_since(self, instants: Nanoseconds) -> Nanoseconds:
        """End of the last piece before each of the `instants`, but no later than it; the least int64 before all pieces.

        A piece that begins at the moment is not before it.
        """
        before = np.searchsorted(self.starts, instants, side="left") - 1
        ends = np.where(before >= 0, self.ends[np.maximum(before, 0)], _LEAST) if self else _LEAST
        return np.minimum(ends, instants)

    def _covered_until(self, instants: Nanoseconds) -> Nanoseconds:
        covered = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.durations_ns)))
        index = np.searchsorted(self.starts, instants, side="right")
        beyond = np.concatenate((self.starts[:1], self.ends))[index] - instants
        np.maximum(beyond, 0, out=beyond)
        beyond[index == 0] = 0
        return covered[index] - beyond
