"""By how much does the memory that a process holds rise, and how often does it ask the driver for more?"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.memory.peak import memory_uses
from perfdoctor.metrics.memory.step_samples import samples
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import torch as torch_names

#: What torch.profiler keeps in the process itself until the recording ends, one row each.
_KEPT_BY_RECORDER = ("ops", "ranges", "functions")


class MemoryGrowth(Struct, frozen=True):
    """Of one process and device, from the end of one recorded step to the end of the next.

    `bytes_per_step` is the smaller of median and mean: a jump in one step does not raise the median, and a fall now and
    then (a cache that is emptied) lowers the mean. `rising_share` is in how many of the `gaps` it rose.
    `capacity_bytes` is that of the device, 0 if not known.
    """

    rank: int
    kind: str
    bytes_per_step: float
    rising_share: float
    gaps: int
    first_bytes: int
    last_bytes: int
    capacity_bytes: int


def growths(timeline: Timeline, recorder_bytes_per_row: float) -> Iterator[MemoryGrowth]:
    """The growth of each process and device. On a heap that torch.profiler shares, what it keeps is taken off first."""
    for rank, device, rows in _holders(samples(timeline)):
        held, kind = rows["allocated_bytes"], rows.name[0]
        rises = np.diff(held).astype(np.float64)
        if kind == "heap":
            recorded = [timeline[signal].of(rank=rank).start_ns for signal in _KEPT_BY_RECORDER]
            rises -= recorder_bytes_per_row * np.sum(
                [np.histogram(start_ns, bins=rows.start_ns)[0] for start_ns in recorded], axis=0
            )
        yield MemoryGrowth(
            rank,
            kind,
            float(min(np.median(rises), np.mean(rises))),
            float(np.mean(rises > 0)),
            rises.size,
            int(held[0]),
            int(held[-1]),
            timeline.device_of(rank, device).memory_bytes,
        )


def _holders(frame: Frame) -> Iterator[tuple[int, int, Frame]]:
    """Rank, device and rows of each process and device that has two samples at least."""
    holders = zip(*(frame[column].tolist() for column in ("rank", "process", "device")), strict=True)
    for rank, process, device in sorted(set(holders)):
        rows = frame.of(rank=rank, process=process, device=device)
        if len(rows) >= 2:
            yield rank, device, rows


class Reserve(Struct, frozen=True):
    """What torch kept reserved on one device: a caching allocator keeps the most that was ever needed at once.

    Where samples have no reserve there is none. `rises`: after how many samples it was larger than ever before.
    """

    rank: int
    first_bytes: int
    peak_bytes: int
    rises: int
    held_first_bytes: int
    held_last_bytes: int
    capacity_bytes: int


def reserves(timeline: Timeline) -> Iterator[Reserve]:
    """The reserve of each process and device of which at least two samples have it."""
    frame = samples(timeline)
    for rank, device, rows in _holders(frame.take(frame.name.equals("cuda") & (frame["reserved_bytes"] > 0))):
        reserved, held = rows["reserved_bytes"], rows["allocated_bytes"]
        yield Reserve(
            rank,
            int(reserved[0]),
            int(reserved.max()),
            int((np.diff(np.maximum.accumulate(reserved)) > 0).sum()),
            int(held[0]),
            int(held[-1]),
            timeline.device_of(rank, device).memory_bytes,
        )


class ReservedPeak(Struct, frozen=True):
    """The most that torch ever reserved on one device, and the memory that the device has (0 if not known)."""

    rank: int
    peak_bytes: int
    capacity_bytes: int


def reserved_peaks(timeline: Timeline) -> Iterator[ReservedPeak]:
    """The peaks of devices of which samples, a snapshot or running totals have the reserve: one may have several."""
    for reserve in reserves(timeline):
        yield ReservedPeak(reserve.rank, reserve.peak_bytes, reserve.capacity_bytes)
    for use in memory_uses(timeline):
        # What CUDA handed out before nsys recorded is missing from its totals.
        if use.most_reserved_bytes >= 0 and use.source != "driver":
            capacity_bytes = timeline.device_of(use.rank, use.device).memory_bytes
            yield ReservedPeak(use.rank, use.most_reserved_bytes, capacity_bytes)


class Requests(Struct, frozen=True):
    """How often a place asks the driver for memory.

    `per_tensor`: for each op that allocates or each kernel, whichever are more. `returned_share`: calls that free
    memory for each that asks for it.
    """

    per_step: float
    per_tensor: float
    returned_share: float


def requests(place: Place) -> Requests:
    """The requests in the place's window. Without PyTorch's cache each tensor is asked for and given back once."""
    calls = _inside(place, "calls", cuda_names.ASKS_FOR_MEMORY)
    freed = _inside(place, "calls", cuda_names.GIVES_MEMORY_BACK)
    tensors = max(_inside(place, "ops", torch_names.ALLOCATES), len(place.kernels))
    return Requests(calls / place.units, calls / max(tensors, 1), freed / max(calls, 1))


def _inside(place: Place, signal: str, pattern: re.Pattern[str]) -> int:
    """How many rows of that name begin in the window."""
    rows = place.timeline[signal].of(rank=place.rank)
    at = rows.named(pattern).start_ns
    return int(np.count_nonzero(place.window.overlap_ns(at, at + 1)))
