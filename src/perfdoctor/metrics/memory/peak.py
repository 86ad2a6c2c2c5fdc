"""How much memory was in use at the worst moment, by whom and for what, and how much could not be used?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.grouping import combined
from perfdoctor.metrics.memory.in_use import SnapshotReplay, replays
from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask, Text, Timeline
from perfdoctor.records.memory import Holder, MemoryUse

#: What a report shows of those who hold memory: further down is too little to matter.
_MOST_HOLDERS = 10
#: The numbers of MemoryUse that may be unknown.
_NUMBERS = tuple(name for name in MemoryUse.__struct_fields__ if name.endswith(("_bytes", "_pieces")))
#: In this size the allocator maps memory of expandable segments (kLargeBuffer of CUDACachingAllocator).
_PAGE_BYTES = 20 << 20


@once_per_timeline
def memory_uses(timeline: Timeline) -> tuple[MemoryUse, ...]:
    """The memory use of each rank and device: by snapshots, else by torch.profiler, else by nsys."""
    found = [_use(replay) for replay in replays(timeline)]
    sources = (("memory_changes", _changes_use), ("memory_totals", _totals_use), ("device_memory", _device_use))
    for signal, use in sources:
        frame, known = timeline[signal], {(each.rank, each.device) for each in found}
        places = sorted(set(zip(frame["rank"].tolist(), frame["device"].tolist(), strict=True)) - known)
        found += [use(rank, device, frame.of(rank=rank, device=device)) for rank, device in places]
    return tuple(sorted(found, key=lambda use: (use.rank, use.device)))


def _use(replay: SnapshotReplay) -> MemoryUse:
    segments, peak_at = replay.segments, replay.peak_at
    alive, pieces = replay.alive_at(peak_at), replay.free_pieces(peak_at)
    requested = segments["requested_bytes"]
    return MemoryUse(
        rank=replay.rank,
        device=replay.device,
        source="snapshot",
        events=int(replay.active[0].size - 1),
        reserved_bytes=int(segments["bytes"].sum()),
        allocated_bytes=int(segments["allocated_bytes"].sum()),
        active_bytes=int(segments["active_bytes"].sum()),
        requested_bytes=UNKNOWN if (requested == UNKNOWN).any() else int(requested.sum()),
        peak_bytes=replay.active_at(peak_at),
        peak_reserved_bytes=replay.reserved_at(peak_at),
        most_reserved_bytes=int(replay.reserved[1].max()),
        free_bytes=int(pieces.sum()),
        free_pieces=int(pieces.size),
        largest_free_bytes=int(pieces.max(initial=0)),
        by_category=_summed(replay.allocations.text("category"), replay.allocations["bytes"], alive),
        holders=holders(replay.allocations, alive)[:_MOST_HOLDERS],
        first_reserved_bytes=int(replay.reserved[1][0]),
    )


def _totals_use(rank: int, device: int, totals: Frame) -> MemoryUse:
    """Memory use by running totals, of which nothing is known but the sums."""
    allocated, reserved = totals["allocated_bytes"], totals["reserved_bytes"]
    peak = int(allocated.argmax())
    return _of_known(
        rank,
        device,
        "profiler",
        len(totals),
        reserved_bytes=int(reserved[-1]),
        allocated_bytes=int(allocated[-1]),
        peak_bytes=int(allocated[peak]),
        peak_reserved_bytes=int(reserved[peak]),
        most_reserved_bytes=int(reserved.max()),
        first_reserved_bytes=int(reserved[0]),
    )


def _changes_use(rank: int, device: int, changes: Frame) -> MemoryUse:
    """Memory use by changes of known purpose, of which the reserve is not known."""
    held = changes["bytes"].cumsum()
    peak = int(held.argmax())
    until = np.arange(len(changes)) <= peak
    return _of_known(
        rank,
        device,
        "timeline",
        len(changes),
        allocated_bytes=int(held[-1]),
        peak_bytes=int(held[peak]),
        by_category=_summed(changes.name, changes["bytes"], until),
    )


def _device_use(rank: int, device: int, handed_out: Frame) -> MemoryUse:
    """Memory use by what CUDA handed out; what torch uses of it, what for, and what was there before are not known."""
    last, most = int(handed_out["bytes"][-1]), int(handed_out["bytes"].max())
    return _of_known(
        rank,
        device,
        "driver",
        len(handed_out),
        reserved_bytes=last,
        peak_bytes=most,
        peak_reserved_bytes=most,
        most_reserved_bytes=most,
    )


def _of_known(
    rank: int, device: int, source: Literal["profiler", "timeline", "driver"], events: int, **known: Any
) -> MemoryUse:
    """The memory use with these numbers; of the others nothing is known."""
    return MemoryUse(rank, device, source, events, **{**dict.fromkeys(_NUMBERS, UNKNOWN), **known})


def _summed(category: Text, size: Ints, rows: Mask) -> dict[str, int]:
    """Bytes by category, the most first; what is empty is left out."""
    totals: dict[str, int] = {}
    for name, _, total in category.take(rows).sums(size[rows]):
        if total:
            totals[name] = totals.get(name, 0) + int(total)
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


def holders(allocations: Frame, alive: Mask) -> tuple[Holder, ...]:
    """Allocations made from the same lines for the same purpose, the most bytes first."""
    taken = allocations.take(alive)
    stack, category, size = taken.text("stack"), taken.text("category"), taken["bytes"]
    group, first = combined(stack.codes, category.codes)
    totals, counts = np.bincount(group, weights=size), np.bincount(group)
    order = np.argsort(-totals, kind="stable")
    return tuple(
        Holder(taken.name[first[n]], stack[first[n]], category[first[n]], int(totals[n]), int(counts[n]))
        for n in order.tolist()
    )


class OutOfMemory(Struct, frozen=True, dict=True):
    """One request that could not be met: what was asked and by which line, and what the device itself had left."""

    replay: SnapshotReplay
    at: int
    line: str
    asked_bytes: int
    device_free_bytes: int

    @property
    def reserved_bytes(self) -> int:
        return self.replay.reserved_at(self.at)

    @property
    def active_bytes(self) -> int:
        return self.replay.active_at(self.at)

    @cached_property
    def free_pieces(self) -> Ints:
        """Sizes of what lay free in what torch had reserved."""
        return self.replay.free_pieces(self.at)

    @property
    def movable_bytes(self) -> int:
        """Whole pages of 20 MiB of it, which expandable segments could have moved to where they were needed."""
        return int((self.free_pieces // _PAGE_BYTES).sum()) * _PAGE_BYTES

    @property
    def fits_in_pieces(self) -> bool:
        """Would it have fitted if the free pieces lay together, beside what the device itself had left?"""
        is_expandable = bool(self.replay.segments["is_expandable"].any())
        return not is_expandable and 0 <= self.device_free_bytes < self.asked_bytes <= (
            self.device_free_bytes + self.movable_bytes
        )


def out_of_memories(timeline: Timeline) -> Iterator[OutOfMemory]:
    """Every request that failed, in the order of the recording."""
    for replay in replays(timeline):
        events = replay.events
        for row in np.flatnonzero(events.name.equals("oom")).tolist():
            at, asked, left = (int(events[name][row]) for name in ("at", "bytes", "device_free_bytes"))
            yield OutOfMemory(replay, at, events.text("line")[row], asked, left)
