"""What changes in the graph when something is fixed? Each edit returns a new graph.

`share` is the part of the time that goes away, from 0 (nothing changes) to 1. Edits may follow each other in any order:
host time that one has taken out is not there for the next. Nodes get longer by `with_changed_work` and
`with_slower_launches` alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN, Floats, Ints, Mask
from perfdoctor.replay.graph.graph import HOST, NOTHING, WAIT_END, WORK, Graph


def without_host_time(graph: Graph, stretches: Intervals, share: float) -> Graph:
    """The graph without this share of the host's time in these stretches: between calls, and in calls that do not wait.

    Waits for a loader that has a pace of its own stay as they are: see `without_loader_waits`.
    """
    gap, own = np.zeros(len(graph)), np.zeros(len(graph))
    for piece, part in still_there(graph, stretches, share):
        own += part * _inside(graph, piece, graph.recorded_start_ns, graph.recorded_end_ns)
        between = _inside(graph, piece, graph.gap_start_ns, graph.gap_end_ns)
        beside_loader = _inside(graph, piece - graph.awaited, graph.gap_start_ns, graph.gap_end_ns)
        gap += part * np.where(graph.loader_wait_ns > 0, beside_loader, between)
    lag = graph.lag_ns[0] - np.clip(gap.astype(np.int64), 0, np.maximum(graph.lag_ns[0], 0))
    shorter = _with_durations(graph, np.maximum(graph.duration_ns - own.astype(np.int64), 0))
    return replace(shorter, lag_ns=(lag, *shorter.lag_ns[1:]), gone=(*graph.gone, (stretches, share)))


def still_there(graph: Graph, stretches: Intervals, share: float) -> Iterator[tuple[Intervals, float]]:
    """The parts of these stretches, each with the share of it that earlier edits left to be taken out."""
    for earlier, gone in sorted(graph.gone, key=lambda each: -each[1]):
        yield stretches & earlier, max(share - gone, 0.0)
        stretches = stretches - earlier
    yield stretches, share


def _inside(graph: Graph, stretches: Intervals, begin: Ints, end: Ints) -> Ints:
    """Ns of these stretches between `begin` and `end` of each HOST node; 0 for other nodes."""
    host = np.flatnonzero(graph.kind == HOST)
    inside = np.zeros(len(graph), np.int64)
    inside[host] = stretches.overlap_ns(begin[host], end[host])
    return inside


def without_loader_waits(graph: Graph, share: float) -> Graph:
    """The graph in which waits for the loader are shorter by `share`: batches come sooner, or are always there."""
    waits = graph.loader_wait_ns > 0
    lag = graph.lag_ns[1] - (share * graph.loader_wait_ns).astype(np.int64)
    depends = np.where(waits & (share >= 1), NOTHING, graph.depends[1])
    return replace(
        graph, depends=(graph.depends[0], depends, graph.depends[2]), lag_ns=(graph.lag_ns[0], lag, graph.lag_ns[2])
    )


def with_faster_host(graph: Graph, share: float, but: Intervals) -> Graph:
    """The graph with host time shorter by `share` (compiled code, CUDA graphs); waits and the stretches `but` stay."""
    host = graph.kind == HOST
    if not host.any():
        return graph
    first = min(graph.gap_start_ns[host].min(), graph.recorded_start_ns[host].min())
    last = max(graph.gap_end_ns[host].max(), graph.recorded_end_ns[host].max())
    return without_host_time(graph, Intervals.single(int(first), int(last)) - but, share)


def without_waits(graph: Graph, calls: Mask) -> Graph:
    """The graph in which the host does not wait in these calls. `calls`: one bool a row of `timeline.calls`.

    Of calls one behind the other the first that waits drains the queue: if any of them waits, none else is won.
    """
    chosen = (graph.kind == WAIT_END) & calls[np.maximum(graph.call_row, 0)] & (graph.call_row != UNKNOWN)
    device, other_stream = (np.where(chosen, NOTHING, on) for on in graph.depends[1:])
    return replace(
        graph, depends=(graph.depends[0], device, other_stream), extra_ns=np.where(chosen, 0, graph.extra_ns)
    )


def with_shorter_work(graph: Graph, rows: Mask, share: float) -> Graph:
    """The graph in which these rows of DeviceWork are shorter by `share`."""
    return with_changed_work(graph, np.where(rows, share, 0.0))


def with_changed_work(graph: Graph, shorter: Floats, first: int = 0) -> Graph:
    """The graph in which each row of DeviceWork from `first` on is shorter by its own share (longer if below 0)."""
    share = np.where(graph.kind == WORK, shorter[np.maximum(graph.work_row - first, 0)], 0.0)
    durations = np.where(share != 0, ((1 - share) * graph.duration_ns).astype(np.int64), graph.duration_ns)
    transfer = graph.transfer_ns
    if graph.collectives.size:
        transfer = ((1 - share[graph.collectives]) * transfer).astype(np.int64)
    return replace(_with_durations(graph, durations), transfer_ns=transfer)


def with_slower_launches(graph: Graph, added_ns: Floats, first: int = 0) -> Graph:
    """The graph with `added_ns` more host time before the launch of each row of DeviceWork from `first` on."""
    added_ns = np.where(graph.kind == WORK, added_ns[np.maximum(graph.work_row - first, 0)], 0.0)
    launched = (graph.depends[1] != NOTHING) & (added_ns > 0)
    work = np.flatnonzero(launched)
    work = work[graph.kind[graph.depends[1][work]] == HOST]
    more = np.bincount(graph.depends[1][work], weights=added_ns[work], minlength=len(graph))
    return replace(graph, lag_ns=(graph.lag_ns[0] + np.rint(more).astype(np.int64), *graph.lag_ns[1:]))


def _with_durations(graph: Graph, durations: Ints) -> Graph:
    """The graph with these durations. What a call launches starts as long after the call's beginning as it did."""
    saved = graph.duration_ns - durations
    call = np.maximum(graph.depends[1], 0)
    of_host = (graph.depends[1] >= 0) & (graph.kind[call] == HOST)
    lag = graph.lag_ns[1] + np.where(of_host, saved[call], 0)
    return replace(graph, duration_ns=durations, lag_ns=(graph.lag_ns[0], lag, graph.lag_ns[2]))
