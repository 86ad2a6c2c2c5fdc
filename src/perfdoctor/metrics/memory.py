"""By how much does the memory that a process holds rise from step to step?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfdoctor.timeline.model import Frame, Timeline

#: What torch.profiler keeps in the process itself until the recording ends, one row each.
_KEPT_BY_RECORDER = ("ops", "ranges", "functions")


@dataclass(frozen=True)
class Growth:
    """Of one process and device, from the end of one recorded step to the end of the next.

    `bytes_per_step` is the smaller of median and mean: a jump in one step does not raise the median, and a fall now and
    then (a cache that is emptied) lowers the mean. `rising_share` tells in how many of the `gaps` it rose.
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


def growths(timeline: Timeline, recorder_bytes_per_row: float) -> Iterator[Growth]:
    """One a process and device. On a heap that torch.profiler shares, what it keeps itself is taken off first."""
    frame = timeline["memory"]
    holders = zip(*(frame[column].tolist() for column in ("rank", "process", "device")), strict=True)
    for rank, process, device in sorted(set(holders)):
        rows = frame.of(rank=rank, process=process, device=device)
        if len(rows) < 2:
            continue
        held, kind = rows["allocated_bytes"], rows.name[0]
        rises = np.diff(held).astype(np.float64)
        if kind == "heap":
            rises -= recorder_bytes_per_row * _recorded_rows(timeline, rank, rows)
        yield Growth(
            rank,
            kind,
            float(min(np.median(rises), np.mean(rises))),
            float(np.mean(rises > 0)),
            rises.size,
            int(held[0]),
            int(held[-1]),
            timeline.device_of(rank, device).memory_bytes,
        )


def _recorded_rows(timeline: Timeline, rank: int, moments: Frame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How many rows the recording has of this rank between each two moments."""
    counts = np.zeros(len(moments) - 1, dtype=np.int64)
    for signal in _KEPT_BY_RECORDER:
        counts += np.histogram(timeline[signal].of(rank=rank).start_ns, bins=moments.start_ns)[0]
    return counts
