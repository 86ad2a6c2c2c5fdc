"""Which memory did torch's CUDA allocator hold, and who allocated it when? Reads snapshots of `torch.cuda.memory`.

Format: torch/csrc/cuda/Module.cpp (`_cuda_memorySnapshot`), read by torch/cuda/_memory_viz.py. A dict of `segments`
(what was reserved from the driver, each cut into `blocks`), `device_traces` (a ring buffer of events a device) and, in
newer ones, `external_annotations`; older ones are the bare list of segments, and hold frames in a block's `history`.
An event has the requested size; the allocator rounds it up to 512 bytes, and more where it does not split a block.

The trace ends with the snapshot, so allocations are matched backwards from the blocks in use: a free without an
allocation is of memory from before the recording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Source, Text, Timeline
from perfdoctor.readers import plain_pickle
from perfdoctor.readers.torch_memory.snapshot_rows import (
    MOST_BYTES,
    Blocks,
    Events,
    Row,
    Stacks,
    column,
    rank_in_name,
    text_of,
)
from perfdoctor.readers.torch_memory.stacks import BEFORE, NO_STACK, Stack
from perfdoctor.system.own_process import no_collection

_HOW = "write it with torch.cuda.memory._dump_snapshot(), after torch.cuda.memory._record_memory_history()"
_MARKS = (b"device_traces", b"segments", b"segment_type", b"total_size")
#: The allocator's smallest block (kMinBlockSize of CUDACachingAllocator).
ROUNDED_TO_BYTES = 512
_MOST_DEVICES = 256
_SEGMENT_EVENTS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")


def looks_like(head: bytes) -> bool:
    """Do these first bytes begin a pickle with keys that only a snapshot has?"""
    return plain_pickle.is_pickle(head) and any(mark in head for mark in _MARKS)


def read(path: Path) -> Timeline:
    """The Timeline of one snapshot: one rank, 0 where the file's name has none (`Source.ranks` is empty then).

    Raises PerfdoctorError where the pickle is damaged, holds more than plain data, or no snapshot.
    """
    try:
        with no_collection():
            return _Snapshot(path, plain_pickle.load(path), rank_in_name(path.name)).timeline()
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, IndexError) as error:
        raise PerfdoctorError(f"`{path.name}` is no memory snapshot that perfdoctor understands", do=_HOW) from error


class _Snapshot:
    """One snapshot, and the Timeline made of it."""

    def __init__(self, path: Path, data: object, rank: int | None) -> None:
        self.file, self.known_rank, self.rank = path.name, rank, rank or 0
        # A hostile pickle may repeat one row millions of times; no valid file has more rows than bytes.
        self.rows_left = path.stat().st_size
        whole: Mapping[str, Any] = data if isinstance(data, Mapping) else {"segments": data}
        self.segments = self._rows(whole["segments"])
        self.traces = [self._rows(trace) for trace in self._list(whole.get("device_traces") or [])]
        self.annotations = self._rows(whole.get("external_annotations") or [])
        self.stacks = Stacks(self.rows_left)
        self.notes: list[str] = []
        if not self.segments and not any(self.traces):
            raise PerfdoctorError(f"`{self.file}` holds no memory: nothing was reserved on any GPU", do=_HOW)

    def _list(self, rows: object) -> Sequence[Any]:
        if not isinstance(rows, list | tuple):
            raise TypeError("no list")
        self.rows_left -= len(rows)
        if self.rows_left < 0:
            raise ValueError("more rows than bytes")
        return rows

    def _rows(self, rows: object) -> list[Row]:
        found = list(self._list(rows))
        if not all(isinstance(row, dict) for row in found):
            raise TypeError("a row that is no dict")
        return found

    def timeline(self) -> Timeline:
        blocks = [self._rows(segment["blocks"]) for segment in self.segments]
        devices = {int(segment["device"]) for segment in self.segments}
        devices |= {number for number, trace in enumerate(self.traces) if trace}
        if len(devices) > _MOST_DEVICES:
            raise ValueError("more devices than any machine has")
        parts = [self._device(device, blocks) for device in sorted(devices)]
        recorded = {"allocations", "memory_segments"} | ({"memory_events"} if any(self.traces) else set())
        return Timeline.build(
            {name: Frame.join([part[name].sorted() for part in parts]) for name in parts[0]},
            recorded,
            sources=[Source("memory", self.file, "", () if self.known_rank is None else (self.rank,))],
            notes=self.notes,
        )

    def _device(self, device: int, blocks: Sequence[Sequence[Row]]) -> dict[str, Frame]:
        here = [number for number, segment in enumerate(self.segments) if int(segment["device"]) == device]
        events = Events(self.traces[device] if device < len(self.traces) else [])
        alive = Blocks([self.segments[number] for number in here], [blocks[number] for number in here])
        if events.rows and not events.has_times:
            self.notes.append(f"`{self.file}` has no times: only the order of its events is known")
        return {
            "allocations": self._allocations(device, events, alive),
            "memory_segments": self._segments(device, [self.segments[number] for number in here], events.end_ns),
            "memory_events": self._events(device, events),
        }

    # --- frames ---

    def _frame(self, device: int, count: int, columns: Mapping[str, Any]) -> Frame:
        def constant(value: int) -> Ints:
            return np.full(count, value, np.int64)

        return Frame({"rank": constant(self.rank), "process": constant(0), "device": constant(device), **columns})

    def _allocations(self, device: int, events: Events, alive: Blocks) -> Frame:
        """The trace's allocations, then earlier ones that were freed in it, then earlier ones that are still in use."""
        freed = events.freed()
        made = events.where("alloc")
        first_made, open_at = made[freed == UNKNOWN], events.address[made[freed == UNKNOWN]]
        # The latest allocation at an address is the one that may be alive; a block without one is from before.
        latest = dict(zip(open_at.tolist(), first_made.tolist(), strict=True))
        origin = np.array([latest.get(address, UNKNOWN) for address in alive.address.tolist()], np.int64)
        lost = np.isin(made, np.setdiff1d(first_made, origin)) & (freed == UNKNOWN)
        if count := int(lost.sum()):
            what = "allocation" if count == 1 else "allocations"
            self.notes.append(f"{count:,} {what} of `{self.file}` ended without a recorded free")
        freed = np.where(lost, len(events.rows), freed)
        occupied = _rounded(events.size[made])
        block_of = dict(zip(origin.tolist(), range(origin.size), strict=True))
        held = np.array([block_of.get(position, UNKNOWN) for position in made.tolist()], np.int64)
        is_held = (held != UNKNOWN) & (freed == UNKNOWN)
        occupied[is_held] = alive.size[held[is_held]]
        gone, kept = events.freed_only(), origin == UNKNOWN
        stacks = [
            *(self.stacks.of(events.rows[position].get("frames"), NO_STACK) for position in made.tolist()),
            *[BEFORE] * gone.size,
            *(self.stacks.of(alive.frames[row], BEFORE) for row in np.flatnonzero(kept).tolist()),
        ]
        before = np.full(gone.size + int(kept.sum()), UNKNOWN, np.int64)
        first, last = np.concatenate((made, before)), np.concatenate((freed, gone, before[gone.size :]))
        return self._frame(device, first.size, {
            "stream": np.concatenate((events.stream[made], events.stream[gone], alive.stream[kept])),
            "start_ns": np.where(first == UNKNOWN, events.start_ns, events.time_at(first)),
            "end_ns": np.where(last == UNKNOWN, events.end_ns, events.time_at(last)),
            "bytes": np.concatenate((occupied, _rounded(events.size[gone]), alive.size[kept])),
            "requested_bytes": np.concatenate((events.size[made], events.size[gone], alive.requested[kept])),
            "address": np.concatenate((events.address[made], events.address[gone], alive.address[kept])),
            "made_at": first, "freed_at": last,
            **_texts(stacks, line="name", stack="stack", category="category"),
        })  # fmt: skip

    def _segments(self, device: int, rows: Sequence[Row], at_ns: int) -> Frame:
        at = np.full(len(rows), at_ns, np.int64)
        sizes = {
            "bytes": column(rows, "total_size"), "allocated_bytes": column(rows, "allocated_size"),
            "active_bytes": column(rows, "active_size"),
        }  # fmt: skip
        if any(((size < 0) | (size > MOST_BYTES)).any() for size in sizes.values()):
            raise ValueError("an impossible size")
        return self._frame(device, len(rows), {
            "stream": column(rows, "stream", 0), "start_ns": at, "end_ns": at,
            "name": Text.of(text_of(row.get("segment_type"))[:16] for row in rows),
            "address": column(rows, "address", 0), **sizes,
            "requested_bytes": column(rows, "requested_size", UNKNOWN),
            "is_expandable": np.array([bool(row.get("is_expandable")) for row in rows], np.bool_),
        })  # fmt: skip

    def _events(self, device: int, events: Events) -> Frame:
        """The `events` of a device that are no allocations: memory reserved or returned, out of memory, and marks."""
        shown = [row for row, action in enumerate(events.actions) if action in (*_SEGMENT_EVENTS, "oom")]
        at = np.array(shown, np.int64)
        stacks = [self.stacks.of(events.rows[row].get("frames"), NO_STACK) for row in shown]
        marks = [row for row in self.annotations if row.get("stage") == "START" and row.get("device", device) == device]
        mark_ns = column(marks, "time_us", 0) * 1000
        trace_ns = events.time_at(np.arange(len(events.rows)))
        stacks += [Stack(text_of(row.get("name"))[:120], "", "") for row in marks]
        free = [row.get("device_free", UNKNOWN) for row in (events.rows[row] for row in shown)]
        none = np.full(len(marks), UNKNOWN, np.int64)
        times = np.concatenate((events.time_at(at), mark_ns))
        return self._frame(device, len(stacks), {
            "stream": np.concatenate((events.stream[at], none)), "start_ns": times, "end_ns": times,
            "name": Text.of([*(events.actions[row] for row in shown), *["mark"] * len(marks)]),
            "bytes": np.concatenate((events.size[at], none)), "address": np.concatenate((events.address[at], none)),
            "device_free_bytes": np.concatenate((np.array(free, np.int64), none)),
            "at": np.concatenate((at, np.searchsorted(trace_ns, mark_ns, side="right") - 1)),
            **_texts(stacks, line="line", stack="stack"),
        })  # fmt: skip


def _rounded(sizes: Ints) -> Ints:
    return np.maximum(-(-sizes // ROUNDED_TO_BYTES), 1) * ROUNDED_TO_BYTES


def _texts(stacks: Sequence[Stack], **columns: str) -> dict[str, Text]:
    """Text columns of the stacks' fields; each distinct stack is converted once."""
    different = list({id(stack): stack for stack in stacks}.values())
    place = {id(stack): number for number, stack in enumerate(different)}
    codes = np.array([place[id(stack)] for stack in stacks], np.int32)

    def field_of(field: str) -> Text:
        text = Text.of(getattr(stack, field) for stack in different)
        return Text(text.codes[codes] if codes.size else codes, text.values)

    return {name: field_of(field) for field, name in columns.items()}
