"""How long is work queued after its launch, what had been queued early, and in which calls does the host wait?"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.columns import occurring
from perfdoctor.model.device_work import DeviceWork
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import HostActivity
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask
from perfdoctor.vocabulary.names import cuda as cuda_names

#: From the launching call to the kernel's start on an empty queue: 5-10 µs measured under CUPTI on Linux. The latency
#: seen in the recording is used up to this bound, since in a recording whose queue is always full it is not seen.
LONGEST_LATENCY_NS = 20_000
#: A launch takes 5-20 µs, also under a profiler. A far longer one waits until the device's queue has room, or loads
#: code, or was held up.
LONGEST_LAUNCH_NS = 100_000
#: The queue holds 1,022 launches that have not begun (CUDA, on V100 to B200), fewer of those with many arguments.
_FULL_QUEUE = 500
#: A call that takes so long with so many waiting stands behind one that waits: the driver lets one at a time in.
_HELD_UP_NS, _MANY_WAITING = 1_000_000, 50
#: The launch of a graph takes 0.6 to 0.75 µs for each of its kernels, where these are recorded (RTX 3060, H100).
_OF_GRAPH_NODE_NS = 2_000


def launch_latency_ns(work: DeviceWork, calls: Frame) -> int:
    """The time from the start of a launching call to the start of its work on an empty queue, in ns."""
    rows = np.flatnonzero(work.launch != UNKNOWN)
    if rows.size == 0:
        return LONGEST_LATENCY_NS
    delay = work.start_ns[rows] - calls.start_ns[work.launch[rows]]
    return int(np.clip(np.quantile(delay, 0.05), 0, LONGEST_LATENCY_NS))


def before_first_call(work: DeviceWork) -> Mask:
    """One bool a row of work: was it queued before the recording began?

    Streams run in order: such is what ran on one before its first work whose launching call was recorded.
    """
    before = np.zeros(len(work), dtype=bool)
    if (work.launch != UNKNOWN).all():
        return before
    for stream in occurring(work.stream):
        rows = np.flatnonzero(work.stream == stream)
        known = np.flatnonzero(work.launch[rows] != UNKNOWN)
        before[rows[: known[0] if known.size else 0]] = True
    return before


def graphs_in_flight(work: DeviceWork, calls: Frame) -> Intervals:
    """When CUDA graphs ran: from when each could start on its stream to the end of its last recorded kernel.

    Profilers lose kernels inside graphs, so a pause there is most likely a kernel that was not recorded, and not the
    host's. On a stream that carries graphs, what was queued before the recording began counts as a graph too.
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


def full_queue_launches(work: DeviceWork, calls: Frame) -> Ints:
    """The rows of `timeline.calls` that launch work and wait until the device has begun, or done, what was queued.

    Of long launches these are the ones at which enough had been launched that had not begun yet. A graph is one entry
    of the queue, however many kernels it has: it waited if it took longer than its kernels need, on a busy device.
    """
    known = work.launch != UNKNOWN
    launched, first, nodes = np.unique(work.launch[known], return_index=True, return_counts=True)
    long = calls.duration_ns[launched] > LONGEST_LAUNCH_NS
    launched, nodes, begun = launched[long], nodes[long], work.start_ns[known][first[long]]
    at = calls.start_ns[launched]
    asked = np.sort(calls.start_ns[work.launch[known]])
    waiting = np.searchsorted(asked, at) - np.searchsorted(np.sort(work.start_ns[known]), at)
    graph = calls.name.matches(cuda_names.GRAPH_LAUNCH)[launched]
    own_ns = LONGEST_LAUNCH_NS + _OF_GRAPH_NODE_NS * np.maximum(nodes, _FULL_QUEUE)
    took = calls.duration_ns[launched]
    full = (waiting >= _FULL_QUEUE) | ((waiting >= _MANY_WAITING) & (took > _HELD_UP_NS))
    full = np.where(graph, (waiting > 0) & (took > own_ns), full)
    # The call that copies memory which is not pinned returns when that is on its way: it waits for its turn before.
    full |= ~calls.name.matches(cuda_names.LAUNCH)[launched] & (begun <= calls.end_ns[launched])
    rows: Ints = launched[full & ~calls.name.matches(cuda_names.ALLOCATOR_CALL)[launched]]
    return rows


def waits_to_free(work: DeviceWork, calls: Frame, rows: Ints) -> tuple[Ints, Ints]:
    """Return the calls among these rows that wait for the device before they give memory back, and when it was done.

    `rows`: of `timeline.calls`. From that moment (ns) on the call itself is at work.
    """
    rows = rows[calls.name.matches(cuda_names.FREE_WAITS)[rows] & (calls.duration_ns[rows] > LONGEST_LAUNCH_NS)]
    busy = Intervals.of(work.start_ns, work.end_ns)
    begin, end = calls.start_ns[rows], calls.end_ns[rows]
    rows = rows[(busy.overlap_ns(begin, begin + 1) > 0) & (busy.overlap_ns(end - 1, end) == 0)]
    done: Ints = busy.ends[np.searchsorted(busy.ends, calls.end_ns[rows], side="right") - 1]
    return rows, done


def blocking_rows(host: HostActivity, work: DeviceWork) -> Ints:
    """The rows of `timeline.calls` in which the host waits for the device: by name, and copies to pageable memory."""
    return np.union1d(host.blocking, blocking_copies(work))


def blocking_copies(work: DeviceWork) -> Ints:
    """The rows of `timeline.calls` that launch copies for which the host waits (`.item()`, `.cpu()`)."""
    rows: Ints = work.launch[work.is_blocking_copy & (work.launch != UNKNOWN)]
    return rows
