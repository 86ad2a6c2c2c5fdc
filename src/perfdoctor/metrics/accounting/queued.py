"""What had been queued while the device stood still: before the recording began, or inside a CUDA graph?"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.columns import occurring
from perfdoctor.model.device_work import DeviceWork
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN, Frame, Mask
from perfdoctor.vocabulary.names import cuda as cuda_names

#: From the launching call to the kernel's start on an empty queue: 5-10 µs measured under CUPTI on Linux. The latency
#: seen in the recording is used up to this bound, since in a recording whose queue is always full it is not seen.
LONGEST_LATENCY_NS = 20_000
#: A launch takes 5-20 µs, also under a profiler. A far longer one waits until the device's queue has room.
LONGEST_LAUNCH_NS = 100_000


def launch_latency_ns(work: DeviceWork, calls: Frame) -> int:
    """The shortest usual time from the start of a launching call to the start of its work, in ns."""
    rows = np.flatnonzero(work.launch != UNKNOWN)
    if rows.size == 0:
        return LONGEST_LATENCY_NS
    delay = work.start_ns[rows] - calls.start_ns[work.launch[rows]]
    return int(np.clip(np.quantile(delay, 0.05), 0, LONGEST_LATENCY_NS))


def before_first_call(work: DeviceWork) -> Mask:
    """Streams run in order: what ran on one before its first work with a call was queued before the recording began."""
    before = np.zeros(len(work), dtype=bool)
    if (work.launch != UNKNOWN).all():
        return before
    for stream in occurring(work.stream):
        rows = np.flatnonzero(work.stream == stream)
        known = np.flatnonzero(work.launch[rows] != UNKNOWN)
        before[rows[: known[0] if known.size else 0]] = True
    return before


def graphs_in_flight(work: DeviceWork, calls: Frame) -> Intervals:
    """From when a graph could start on its stream to the end of its last recorded kernel: the host has no part in it.

    Profilers lose kernels inside graphs. A pause there is the graph's own: a kernel that was not recorded, most likely.
    On a stream that carries graphs, what was queued before the recording began counts as such too.
    """
    rows = np.flatnonzero(work.launch != UNKNOWN)
    if not rows.size:
        return Intervals.empty()
    rows = rows[calls.name.matches(cuda_names.GRAPH_LAUNCH)[work.launch[rows]]]
    pieces, early = Intervals.empty(), before_first_call(work)
    for stream in np.unique(work.stream[rows]).tolist():
        on_stream = np.flatnonzero(work.stream == stream)
        free = np.concatenate(([0], np.maximum.accumulate(work.end_ns[on_stream])[:-1]))
        own = np.isin(on_stream, rows)
        before = on_stream[early[on_stream]]
        if before.size:
            pieces = pieces | Intervals.single(int(work.start_ns[before[0]]), int(work.end_ns[before].max()))
        launched = calls.start_ns[work.launch[on_stream[own]]]
        pieces = pieces | Intervals.of(np.maximum(free[own], launched), work.end_ns[on_stream[own]])
    return pieces
