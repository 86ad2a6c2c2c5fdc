"""What changes in the graph when work is fused? Many kernels become few, and the host makes fewer launches.

The host time of a piece of work is its launch, and what the thread did since its launch before: the op around it, the
Python in front, calls that launch nothing. A launch of several pieces (a CUDA graph) stays as long as one of them does.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from perfdoctor.metrics.work.device_peaks import kernel_floor_ns
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import Ints, Mask
from perfdoctor.replay.edits.shorter import with_shorter_work, without_host_time
from perfdoctor.replay.graph.graph import HOST, NOTHING, WAIT_END, WORK, Graph

#: Launching an op takes the host 5-50 µs. Of a far longer pause the rest is something else.
_LONGEST_LAUNCHING_NS = 100_000
#: One behind the other in a queue, work starts 1-2 µs after what was before it, unless this machine was measured.
_LONGEST_START_NS = 2_000


def merged(graph: Graph, rows: Mask, share: float, but: Intervals) -> Graph:
    """The graph with shorter rows of DeviceWork, gaps in front of them, and launches of them on the host.

    `but`: when the host did something else than launch. `share`: by how much shorter, from 0 to 1.
    """
    shorter = without_host_time(graph, _launching(graph, rows) - but, share)
    gaps = (share * _starting_ns(graph, rows)).astype(np.int64)
    return with_shorter_work(replace(shorter, extra_ns=graph.extra_ns - gaps), rows, share)


def beside_ns(graph: Graph, rows: Mask, but: Intervals) -> int:
    """The most that is saved besides the rows' own time, in ns: the launches on the host, and the gaps in front."""
    return (_launching(graph, rows) - but).total_ns + int(_starting_ns(graph, rows).sum())


def _starting_ns(graph: Graph, rows: Mask) -> Ints:
    """Ns that the device takes to start each node of these rows of DeviceWork: the gap in front that is its own."""
    chosen = graph.of_work(rows)
    longest_ns = int(kernel_floor_ns(graph.place, _LONGEST_START_NS)) or _LONGEST_START_NS
    return np.where(chosen, np.minimum(graph.extra_ns, longest_ns), 0)


def _launching(graph: Graph, rows: Mask) -> Intervals:
    """The time in which the host launched these rows and nothing else."""
    work = np.flatnonzero((graph.kind == WORK) & (graph.depends[1] != NOTHING))
    work = work[graph.kind[graph.depends[1][work]] == HOST]
    launches, stays = np.zeros(len(graph), dtype=bool), np.zeros(len(graph), dtype=bool)
    launches[graph.depends[1][work]] = True
    stays[graph.depends[1][work[~rows[graph.work_row[work]]]]] = True
    goes = launches & ~stays
    begins_waiting = np.zeros(len(graph), dtype=bool)
    begins_waiting[graph.depends[0][graph.kind == WAIT_END]] = True
    calls = np.flatnonzero(graph.kind == HOST)
    thread = graph.place.timeline.calls["thread"][graph.call_row[calls]]
    for each in np.unique(thread).tolist():
        own = calls[thread == each]
        goes[own] = _as_the_next(goes[own], launches[own] | begins_waiting[own])
    goes &= graph.kind == HOST
    begin = np.maximum(graph.gap_start_ns, graph.gap_end_ns - _LONGEST_LAUNCHING_NS)
    between, inside = (
        Intervals.of(start[goes], end[goes])
        for start, end in ((begin, graph.gap_end_ns), (graph.recorded_start_ns, graph.recorded_end_ns))
    )
    return between | inside


def _as_the_next(goes: Mask, for_itself: Mask) -> Mask:
    """`goes` of each call or, of one that does not launch or wait (`for_itself`), of the next that does; else False."""
    at = np.flatnonzero(for_itself)
    if not at.size:
        return np.zeros_like(goes)
    following = np.searchsorted(at, np.arange(goes.size))
    return (following < at.size) & goes[at[np.minimum(following, at.size - 1)]]
