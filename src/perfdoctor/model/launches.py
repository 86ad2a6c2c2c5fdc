"""Which call on the host launched which work on the device? Joined by process and correlation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask, Timeline

#: Correlations are 32 bit in every tool; the mask keeps a damaged one from overflowing the key.
_CORRELATION_BITS = 40
_CORRELATION_MASK = (1 << _CORRELATION_BITS) - 1


def _keys(frame: Frame) -> Ints:
    return (frame["process"] << _CORRELATION_BITS) | (frame["correlation"] & _CORRELATION_MASK)


def launch_rows(work: Frame, calls: Frame) -> Ints:
    """For each row of device work the row of `calls` that launched it, UNKNOWN where none was recorded.

    Where several calls carry the same correlation (a runtime call and the driver call inside it) the first one counts.
    """
    known = np.flatnonzero(calls["correlation"] != UNKNOWN)
    if known.size == 0 or len(work) == 0:
        return np.full(len(work), UNKNOWN, dtype=np.int64)
    keys = _keys(calls)[known]
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    wanted = _keys(work)
    place = np.minimum(np.searchsorted(sorted_keys, wanted), sorted_keys.size - 1)
    found = (sorted_keys[place] == wanted) & (work["correlation"] != UNKNOWN)
    return np.where(found, known[order[place]], UNKNOWN).astype(np.int64)


@dataclass(frozen=True)
class DeviceWork:
    """All work of one (rank, device), kernels, collectives and copies together, sorted by start.

    `launch` is the row of `timeline.calls` that launched it, UNKNOWN where none was recorded. `is_h2d` tells copies
    from the host, `is_blocking_copy` copies to its pageable memory (`.item()`, `.cpu()`): their call waits for them.
    """

    start_ns: Ints
    end_ns: Ints
    stream: Ints
    launch: Ints
    is_h2d: Mask
    is_blocking_copy: Mask

    def __len__(self) -> int:
        return int(self.start_ns.size)


def device_work(timeline: Timeline, rank: int, device: int) -> DeviceWork:
    """Everything that ran on one device of one rank, with the calls that launched it."""
    frames = [timeline[signal].of(rank=rank, device=device) for signal in ("kernels", "collectives", "copies")]
    copies = frames[2]
    direction, memory = copies.text("direction"), copies.text("host_memory")
    no_copy = np.zeros(len(frames[0]) + len(frames[1]), dtype=bool)
    start = np.concatenate([frame.start_ns for frame in frames])
    order = np.argsort(start, kind="stable")
    return DeviceWork(
        start_ns=start[order],
        end_ns=np.concatenate([frame.end_ns for frame in frames])[order],
        stream=np.concatenate([frame["stream"] for frame in frames])[order],
        launch=np.concatenate([launch_rows(frame, timeline.calls) for frame in frames])[order],
        is_h2d=np.concatenate((no_copy, direction.equals("h2d")))[order],
        is_blocking_copy=np.concatenate((no_copy, direction.equals("d2h") & memory.equals("pageable")))[order],
    )
