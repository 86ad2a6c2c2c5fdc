"""What is a track before events are merged, in which row is each piece drawn, and which details are shown of it?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from perfdoctor.model.columns import UNKNOWN, Ints, Mask, Text, Whole, firsts, numbered
from perfdoctor.model.timeline import Floats, Frame
from perfdoctor.records.views import Unit
from perfdoctor.vocabulary.signals import SIGNALS

#: What `order` can sort at once, in linear time.
_MOST_SHORT = np.iinfo(np.uint16).max
#: Rows of a track are few, and there may be ten million pieces in them.
_ROW, _MOST_ROWS = np.int16, np.iinfo(np.int16).max
#: Details are exact: reports round where they show them.
_POWERS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
#: Values of columns that say nothing.
_NOTHING = ("", "unknown", "none", UNKNOWN)


class DrawnWindow(Struct, frozen=True):
    """The time that is drawn, in ns of the recording."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    def rows(self, frame: Frame) -> Ints:
        """Which rows of the frame overlap it."""
        return np.flatnonzero((frame.end_ns > self.start_ns) & (frame.start_ns < self.end_ns))

    def inside(self, start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
        """Clip pieces from `start_ns` to `end_ns` to the window; their starts and durations in ns since its start."""
        start: Ints = np.maximum(start_ns, self.start_ns) - self.start_ns
        end: Ints = np.minimum(end_ns, self.end_ns) - self.start_ns
        return start, end - start


class Drawn(Struct, frozen=True):
    """Pieces of its own that a track has, with their names."""

    start_ns: Ints
    duration_ns: Ints
    name: Text


class OfSignal(Struct, frozen=True):
    """Pieces that are rows of a signal: nothing is held of them but which rows."""

    frame: Frame
    rows: Whole
    window: DrawnWindow

    @property
    def start_ns(self) -> Ints:
        return self.window.inside(self.frame.start_ns[self.rows], self.frame.end_ns[self.rows])[0]

    @property
    def duration_ns(self) -> Ints:
        return self.window.inside(self.frame.start_ns[self.rows], self.frame.end_ns[self.rows])[1]

    @property
    def name(self) -> Text:
        return self.frame.name.take(self.rows)


class Lane(Struct, frozen=True):
    """One track, every piece of it, sorted by start; times are ns since the window's start, cut at its edges.

    `kind` is a signal's name, or step, idle or counter. `row`: in which row of the track each piece is drawn.
    """

    kind: str
    title: str
    pieces: Drawn | OfSignal
    row: Whole
    values: Floats = field(default_factory=lambda: np.empty(0))
    unit: Unit = "count"

    def __len__(self) -> int:
        return int(self.row.size)

    @property
    def start_ns(self) -> Ints:
        return self.pieces.start_ns

    @property
    def duration_ns(self) -> Ints:
        return self.pieces.duration_ns

    def names(self, pieces: Ints) -> Text:
        """Name of each of these pieces."""
        if isinstance(self.pieces, OfSignal):
            return self.pieces.frame.name.take(self.pieces.rows[pieces])
        return self.pieces.name.take(pieces)


def lane_of(kind: str, title: str, frame: Frame, rows: Ints, window: DrawnWindow) -> Lane:
    """These rows of a signal as a track; `rows` ascend."""
    rows = rows[_outer_first(frame.start_ns[rows], frame.end_ns[rows])]
    start, duration = window.inside(frame.start_ns[rows], frame.end_ns[rows])
    row = depths(start, start + duration)
    return Lane(kind, title, OfSignal(frame, short(rows), window), row.astype(_ROW) if row.max() < _MOST_ROWS else row)


def short(numbers: Ints) -> Whole:
    """Numbers that are not negative, in 32 bits where these are enough."""
    return numbers.astype(np.int32) if numbers.max(initial=0) <= np.iinfo(np.int32).max else numbers


def _outer_first(start: Ints, end: Ints) -> Ints:
    """The order by start, and longest first among equal starts; starts ascend already."""
    order: Ints = np.arange(start.size)
    together = start[1:] == start[:-1]
    if not (together & (end[1:] > end[:-1])).any():
        return order
    among = np.zeros(start.size, dtype=bool)
    among[1:] |= together
    among[:-1] |= together
    some = np.flatnonzero(among)
    order[some] = some[np.lexsort((-end[some], start[some]))]
    return order


def depths(start: Ints, end: Ints) -> Ints:
    """Row of each piece from `start` to `end`, 0 outermost, so that pieces of a row do not overlap.

    Nested pieces are in the row of their depth. Pieces that overlap without nesting go to the first free row below
    those that contain them.
    """
    end = np.maximum(end, start + 1)  # an empty piece would be both inside and next to its neighbours
    if not (start[1:] < np.maximum.accumulate(end)[:-1]).any():
        return np.zeros(start.size, np.int64)
    row: Ints = np.arange(start.size) - np.searchsorted(np.sort(end), start, side="right")
    for begin, stop in _clusters(start, end, _crossing(start, end, row)):
        row[begin:stop] = _first_free(start[begin:stop].tolist(), end[begin:stop].tolist())
    return row


def _crossing(start: Ints, end: Ints, row: Ints) -> Mask:
    """One bool a piece: does the piece before it in its row overlap it?"""
    at = order(row)
    found = np.zeros(start.size, dtype=bool)
    found[at[1:]] = (row[at[1:]] == row[at[:-1]]) & (start[at[1:]] < end[at[:-1]])
    return found


def _clusters(start: Ints, end: Ints, crossing: Mask) -> Iterator[tuple[int, int]]:
    """First and last (exclusive) piece of each group of overlapping pieces in which some are `crossing`."""
    begins = np.flatnonzero(start[1:] >= np.maximum.accumulate(end)[:-1]) + 1
    edges = np.concatenate(([0], begins, [start.size]))
    of_crossing = np.unique(np.searchsorted(edges, np.flatnonzero(crossing), side="right"))
    return zip(edges[of_crossing - 1].tolist(), edges[of_crossing].tolist(), strict=True)


def _first_free(starts: list[int], ends: list[int]) -> list[int]:
    """Place each piece (`starts`, `ends`), one after the other, in the first free row below those that contain it."""
    reach: list[int] = []
    rows = []
    for start, end in zip(starts, ends, strict=True):
        lowest = 1 + max((row for row, until in enumerate(reach) if until >= end), default=-1)
        row = next((row for row in range(lowest, len(reach)) if reach[row] <= start), len(reach))
        if row == len(reach):
            reach.append(end)
        reach[row] = end
        rows.append(row)
    return rows


def order(small: Whole) -> Ints:
    """A stable order of non-negative integers."""
    most = int(small.max(initial=0))
    if not most:
        return np.arange(small.size)
    short: npt.NDArray[np.generic] = small.astype(np.uint16) if most <= _MOST_SHORT else small
    return np.argsort(short, kind="stable")


def apart(columns: list[Ints]) -> tuple[list[tuple[int, ...]], Ints]:
    """The different combinations of these columns, and which of them each row is."""
    code = np.zeros(columns[0].size, np.int64)
    for column in columns:
        values, of_row = numbered(column)
        if values.size > 1:
            code = code * values.size + of_row
    which = numbered(code)[1]
    return [tuple(int(column[row]) for column in columns) for row in firsts(which).tolist()], which


def split(frame: Frame, rows: Ints, *columns: str) -> Iterator[tuple[tuple[int, ...], Ints]]:
    """The rows by the values of these columns: the values, and the rows that have them, ascending."""
    if not rows.size:
        return
    keys, which = apart([frame[column][rows] for column in columns])
    ends = np.cumsum(np.bincount(which, minlength=len(keys)))
    yield from zip(keys, np.split(rows[order(which)], ends[:-1]), strict=True)


def details(lane: Lane, pieces: Ints) -> Text:
    """A text for each of these pieces of the lane, of its signal's columns that are `shown`; "" where there is none."""
    of_signal = SIGNALS[lane.kind].details if lane.kind in SIGNALS else {}
    columns = {name: column for name, column in of_signal.items() if column.shown}
    if not isinstance(lane.pieces, OfSignal) or not columns or not pieces.size:
        return Text.constant("", pieces.size)
    rows = lane.pieces.frame.take(lane.pieces.rows[pieces])
    values = [rows.columns[name] for name in columns]
    keys, which = apart([(each.codes if isinstance(each, Text) else each).astype(np.int64) for each in values])

    def words(key: tuple[int, ...]) -> Iterator[str]:
        for code, column, of_rows in zip(key, columns.values(), values, strict=True):
            value = of_rows.values[code] if isinstance(of_rows, Text) else code
            if value not in _NOTHING and (value or column.kind is not bool):
                text = column.shown.format(value=value, size=exact_size(code))
                yield text if text.startswith(" ") else f", {text}"

    # Each different combination of values is put together once.
    return Text(which.astype(np.int32), ["".join(words(key)).removeprefix(", ").strip() for key in keys])


def exact_size(size_bytes: int) -> str:
    """Bytes in the largest unit that gives an integer: `4 MiB`, `3,136 B`."""
    unit, scale = next(((unit, scale) for unit, scale in _POWERS if size_bytes and size_bytes % scale == 0), ("B", 1))
    return f"{size_bytes // scale:,} {unit}"
