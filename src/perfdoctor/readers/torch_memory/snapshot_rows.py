"""How do events, blocks and stacks of a memory snapshot become columns?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfdoctor.model.timeline import UNKNOWN, Ints, Mask, Text
from perfdoctor.patterns import regex
from perfdoctor.readers.torch_memory.stacks import Stack, StackFrame, frame_of_row, stack_of

Row = Mapping[str, Any]

_RANK_IN_NAME = regex(r"(?<![a-z])rank[_-]?(\d{1,8})(?!\d)", re.IGNORECASE)

#: No device has as much; a larger number is damage.
MOST_BYTES = 1 << 50
#: Devices have addresses of 57 bits.
_LAST_ADDRESS = 1 << 62
#: How many of a stack's frames select the stacks that may be equal, and how many of those are compared.
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
            raise ValueError("an impossible size")
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
        """For each allocation the position at which its memory could be used again; UNKNOWN where it could not."""
        order, is_made, same = self._by_address()
        freed = np.full(len(self.rows), UNKNOWN, np.int64)
        # If a second allocation follows at the same address, the first ended unrecorded, at the latest then.
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
    """Blocks in use at the time of the snapshot, also those that were freed and wait for another stream."""

    def __init__(self, segments: Sequence[Row], blocks: Sequence[Sequence[Row]]) -> None:
        found: list[tuple[int, int, int, int, object]] = []
        for segment, rows in zip(segments, blocks, strict=True):
            address = int(segment.get("address", 0))
            for row in rows:
                size = int(row["size"])
                if text_of(row["state"]).startswith("active"):
                    frames, requested = _frames_of_block(row)
                    # Old snapshots have no addresses of blocks, which are adjacent.
                    place = int(row.get("address", address))
                    found.append((place, size, requested, int(segment.get("stream", 0)), frames))
                address += size
        self.address, self.size, self.requested, self.stream = (
            _bounded(np.array([row[column] for row in found], np.int64)) for column in range(4)
        )
        if ((self.size < 0) | (self.size > MOST_BYTES)).any():
            raise ValueError("an impossible size")
        self.frames = [row[4] for row in found]


class Stacks:
    """Stacks by their frames. A snapshot contains each frame once and refers to it, so equal ones are the same object.

    Objects are distinguished by `id`: the snapshot that they belong to must outlive this one.
    """

    def __init__(self, most_frames: int) -> None:
        self._left = most_frames
        self._by_list: dict[int, Stack] = {}
        self._alike: dict[tuple[int, tuple[int, ...]], list[tuple[Sequence[object], Stack]]] = {}
        self._frames: dict[int, StackFrame] = {}

    def of(self, frames: object, without: Stack) -> Stack:
        """The stack of these frames; `without` where there are none."""
        if not isinstance(frames, list | tuple) or not frames:
            return without
        known = self._by_list.get(id(frames))
        if known is None:
            self._left -= len(frames)
            if self._left < 0:
                raise ValueError("more frames than bytes")
            known = self._by_list[id(frames)] = self._shared(frames)
        return known

    def _shared(self, frames: Sequence[object]) -> Stack:
        """One stack for equal frames: some of the frames select candidates, then all are compared."""
        some = tuple(map(id, frames[:: len(frames) // _SAMPLED_FRAMES + 1]))
        candidates = self._alike.setdefault((len(frames), some), [])
        for other, stack in candidates[-_MOST_ALIKE:]:
            if frames == other:  # mostly identical objects, which compare quickly
                return stack
        for frame in frames:
            if id(frame) not in self._frames:
                self._frames[id(frame)] = frame_of_row(frame)
        stack = stack_of([self._frames[id(frame)] for frame in frames])
        # Frames of texts and numbers alone: comparing nested lists could take forever.
        if all(isinstance(frame, dict) and not set(map(type, frame.values())) - {str, int} for frame in frames):
            candidates.append((frames, stack))
        return stack


def _frames_of_block(row: Row) -> tuple[object, int]:
    """Frames and requested size; old snapshots have both in a `history`, the latest first."""
    history = row.get("history")
    if "frames" not in row and isinstance(history, list | tuple) and history:
        return history[0].get("frames"), int(history[0].get("real_size", row["size"]))
    return row.get("frames"), int(row.get("requested_size", row["size"]))


def column(rows: Sequence[Row], key: str, default: int | None = None) -> Ints:
    """Whole numbers; KeyError where one is missing and there is no default."""
    values = [row[key] for row in rows] if default is None else [row.get(key, default) for row in rows]
    if set(map(type, values)) - {int}:
        raise TypeError(f"{key} is no whole number")
    return _bounded(np.array(values, dtype=np.int64))


def _bounded(numbers: Ints) -> Ints:
    """The numbers. ValueError where the sum of one and of a size may be none that int64 holds."""
    if numbers.size and numbers.max() > _LAST_ADDRESS:
        raise ValueError("an impossible address, size or time")
    return numbers


def rank_in_name(file: str) -> int | None:
    """`rank0_memory.pickle` is of rank 0; None where the name has no rank."""
    found = _RANK_IN_NAME.search(file)
    return int(found[1]) if found else None


def text_of(value: object) -> str:
    """The value if it is text, else "": converting lists that contain each other could take forever."""
    return value if isinstance(value, str) else ""
