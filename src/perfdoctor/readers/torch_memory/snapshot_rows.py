"""What do the rows of a memory snapshot say as columns: its events, its blocks, its stacks?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfdoctor.model.timeline import UNKNOWN, Ints, Mask, Text
from perfdoctor.readers.torch_memory.stacks import Stack, StackFrame, frame_of_row, stack_of

Row = Mapping[str, Any]

_RANK_IN_NAME = re.compile(r"(?<![a-z])rank[_-]?(\d{1,8})(?!\d)", re.IGNORECASE)

#: No device has as much; a larger number is damage.
MOST_BYTES = 1 << 50
#: So many of a stack's frames are compared before all of them are, and with so many stacks that agree in these.
_SAMPLED_FRAMES, _MOST_ALIKE = 8, 8


class Events:
    """The trace of one device as columns, oldest first; a row's place in it is its position."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.actions = [text_of(row.get("action")) for row in rows]
        self._codes = Text.of(self.actions)
        self.address, self.size = column(rows, "addr", 0), column(rows, "size", 0)
        self.stream = column(rows, "stream", 0)
        if ((self.size < 0) | (self.size > MOST_BYTES)).any():
            raise ValueError("a size that cannot be")
        times_us = column(rows, "time_us", UNKNOWN)
        self.has_times = len(rows) > 0 and bool((times_us > 0).all()) and int(times_us.max()) < 2**62 // 1000
        # Rows are written by several threads, so a time may lie a little before that of the row above.
        times = np.maximum.accumulate(times_us * 1000) if self.has_times else np.arange(len(rows), dtype=np.int64)
        self._times = times
        self.start_ns, self.end_ns = (int(times[0]), int(times[-1])) if len(rows) else (0, 0)

    def where(self, action: str) -> Ints:
        return np.flatnonzero(self._codes.equals(action))

    def time_at(self, positions: Ints) -> Ints:
        """The time of each position; those outside of the trace get that of its edge."""
        if not self._times.size:
            return np.zeros(positions.size, np.int64)
        times: Ints = self._times[np.clip(positions, 0, self._times.size - 1)]
        return times

    def freed(self) -> Ints:
        """Of each allocation the position at which its memory could be used again; UNKNOWN where it was not."""
        order, is_made, same = self._by_address()
        freed = np.full(len(self.rows), UNKNOWN, np.int64)
        # Two allocations at one address: the free between them was not recorded, and came at the latest then.
        ended = np.flatnonzero(is_made[:-1] & same)
        freed[order[ended]] = order[ended + 1]
        return freed[self.where("alloc")]

    def freed_only(self) -> Ints:
        """The positions of frees whose allocation came before the recording."""
        order, is_made, same = self._by_address()
        known = np.zeros(order.size, bool)
        known[1:] = is_made[:-1] & same
        return np.sort(order[~is_made & ~known])

    def _by_address(self) -> tuple[Ints, Mask, Mask]:
        """Allocations and frees by address and position; which are allocations; which share the next one's address."""
        made, ends = self.where("alloc"), self.where("free_completed")
        rows = np.concatenate((made, ends))
        order = rows[np.lexsort((rows, self.address[rows]))]
        address = self.address[order]
        return order, np.isin(order, made), address[1:] == address[:-1]


class Blocks:
    """What was in use at the moment of the snapshot: also memory that was freed and waits for another stream."""

    def __init__(self, segments: Sequence[Row], blocks: Sequence[Sequence[Row]]) -> None:
        found: list[tuple[int, int, int, int, object]] = []
        for segment, rows in zip(segments, blocks, strict=True):
            address = int(segment.get("address", 0))
            for row in rows:
                size = int(row["size"])
                if text_of(row["state"]).startswith("active"):
                    frames, requested = _frames_of_block(row)
                    # Where a block lies was not written once: they lie one behind the other.
                    place = int(row.get("address", address))
                    found.append((place, size, requested, int(segment.get("stream", 0)), frames))
                address += size
        self.address, self.size, self.requested, self.stream = (
            np.array([row[column] for row in found], np.int64) for column in range(4)
        )
        if ((self.size < 0) | (self.size > MOST_BYTES)).any():
            raise ValueError("a size that cannot be")
        self.frames = [row[4] for row in found]


class Stacks:
    """Stacks by their frames. A snapshot writes each frame once and refers to it, so equal ones are the same object.

    Objects are told apart by `id`: the snapshot that they belong to must outlive this one.
    """

    def __init__(self, most_frames: int) -> None:
        self._left = most_frames
        self._by_list: dict[int, Stack] = {}
        self._alike: dict[tuple[int, tuple[int, ...]], list[tuple[Sequence[object], Stack]]] = {}
        self._frames: dict[int, StackFrame] = {}

    def of(self, frames: object, without: Stack) -> Stack:
        """`without` where there are none."""
        if not isinstance(frames, list | tuple) or not frames:
            return without
        known = self._by_list.get(id(frames))
        if known is None:
            self._left -= len(frames)
            if self._left < 0:
                raise ValueError("more frames than bytes")
            known = self._by_list[id(frames)] = self._looked_up(frames)
        return known

    def _looked_up(self, frames: Sequence[object]) -> Stack:
        """Most stacks came before: some of the frames find those it may be, and all of them tell which it is."""
        some = tuple(map(id, frames[:: len(frames) // _SAMPLED_FRAMES + 1]))
        candidates = self._alike.setdefault((len(frames), some), [])
        for other, stack in candidates[-_MOST_ALIKE:]:
            if frames == other:  # the same objects for the most part, which is seen without looking into them
                return stack
        stack = stack_of([self._frame(frame) for frame in frames])
        if all(map(_is_flat, frames)):  # comparing with nested lists could take for ever
            candidates.append((frames, stack))
        return stack

    def _frame(self, row: object) -> StackFrame:
        known = self._frames.get(id(row))
        if known is None:
            known = self._frames[id(row)] = frame_of_row(row)
        return known


def _is_flat(frame: object) -> bool:
    return isinstance(frame, dict) and not set(map(type, frame.values())) - {str, int}


def _frames_of_block(row: Row) -> tuple[object, int]:
    """Frames and the size that was asked for; older ones keep both in a `history`, the latest first."""
    history = row.get("history")
    if "frames" not in row and isinstance(history, list | tuple) and history:
        return history[0].get("frames"), int(history[0].get("real_size", row["size"]))
    return row.get("frames"), int(row.get("requested_size", row["size"]))


def column(rows: Sequence[Row], key: str, default: int | None = None) -> Ints:
    """Whole numbers; KeyError where one is missing and there is no default."""
    values = [row[key] for row in rows] if default is None else [row.get(key, default) for row in rows]
    if set(map(type, values)) - {int}:
        raise TypeError(f"{key} is no whole number")
    return np.array(values, dtype=np.int64)


def rank_in_name(file: str) -> int | None:
    """`rank0_memory.pickle` is of rank 0; None where the name does not tell."""
    told = _RANK_IN_NAME.search(file)
    return int(told[1]) if told else None


def text_of(value: object) -> str:
    """The value if it is text, else nothing: lists that hold each other may take for ever to be written out."""
    return value if isinstance(value, str) else ""
