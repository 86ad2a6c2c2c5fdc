"""What changes in the graph when something is cured? Each edit returns a new graph; none makes a node longer.

`share` is the part of the time that goes away, from 0 (nothing changes) to 1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfdoctor.replay.graph import HOST, NOTHING, WAIT_END, WORK, Graph
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.model import UNKNOWN, Mask


def without_host_time(graph: Graph, stretches: Intervals, share: float) -> Graph:
    """The host does not spend its time in these stretches: between calls, and in calls that do not wait.

    Waits for a loader that has a pace of its own stay as they are: see `without_loader_waits`.
    """
    host = (graph.kind == HOST) & (graph.loader_wait_ns == 0)
    gap_end = graph.gap_start_ns + graph.lag_ns[0]
    gap, own = (
        np.where(host, stretches.overlap_ns(np.where(host, begin, 0), np.where(host, end, 0)), 0)
        for begin, end in (
            (graph.gap_start_ns, gap_end),
            (graph.recorded_end_ns - graph.duration_ns, graph.recorded_end_ns),
        )
    )
    lag = graph.lag_ns[0] - (share * gap).astype(np.int64)
    return replace(
        _with_durations(graph, graph.duration_ns - (share * own).astype(np.int64)),
        lag_ns=(lag, *graph.lag_ns[1:]),
    )


def without_loader_waits(graph: Graph, share: float) -> Graph:
    """The loader makes the training wait so much less: batches come sooner, or are always there."""
    waits = graph.loader_wait_ns > 0
    lag = graph.lag_ns[1] - (share * graph.loader_wait_ns).astype(np.int64)
    depends = np.where(waits & (share >= 1), NOTHING, graph.depends[1])
    return replace(
        graph,
        depends=(graph.depends[0], depends, graph.depends[2]),
        lag_ns=(graph.lag_ns[0], lag, graph.lag_ns[2]),
    )


def with_faster_host(graph: Graph, share: float, but: Intervals) -> Graph:
    """What the host does between and in calls takes so much less: compiled code, CUDA graphs. Waits stay, and `but`."""
    host = graph.kind == HOST
    begin, end = graph.gap_start_ns, graph.gap_start_ns + graph.lag_ns[0]
    stays = np.where(host, but.overlap_ns(np.where(host, begin, 0), np.where(host, end, 0)), 0)
    lag = graph.lag_ns[0] - np.where(host, share * (graph.lag_ns[0] - stays), 0).astype(np.int64)
    durations = np.where(host, ((1 - share) * graph.duration_ns).astype(np.int64), graph.duration_ns)
    return replace(_with_durations(graph, durations), lag_ns=(lag, *graph.lag_ns[1:]))


def without_waits(graph: Graph, calls: Mask, share: float) -> Graph:
    """The host does not wait in these of its calls, or in some. `calls`: one bool a row of `timeline.calls`."""
    chosen = (graph.kind == WAIT_END) & calls[np.maximum(graph.call_row, 0)] & (graph.call_row != UNKNOWN)
    if share < 1:  # of many waits alike a part goes
        number = np.cumsum(chosen)
        chosen &= (number * share).astype(np.int64) > ((number - 1) * share).astype(np.int64)
    waits_for = np.where(chosen, NOTHING, graph.depends[1])
    return replace(
        graph,
        depends=(graph.depends[0], waits_for, graph.depends[2]),
        extra_ns=np.where(chosen, 0, graph.extra_ns),
    )


def with_shorter_work(graph: Graph, rows: Mask, share: float) -> Graph:
    """These rows of DeviceWork take so much less."""
    chosen = (graph.kind == WORK) & rows[np.maximum(graph.work_row, 0)]
    durations = np.where(chosen, ((1 - share) * graph.duration_ns).astype(np.int64), graph.duration_ns)
    transfer = graph.transfer_ns
    if graph.meetings.size:
        met = chosen[graph.meetings]
        transfer = np.where(met, ((1 - share) * transfer).astype(np.int64), transfer)
    return replace(_with_durations(graph, durations), transfer_ns=transfer)


def _with_durations(graph: Graph, durations: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Graph:
    """The launch's lag counts from the end of its call: where that comes sooner, work does as well, but not more."""
    saved = graph.duration_ns - durations
    launch = np.maximum(graph.depends[1], 0)
    of_host = (graph.kind == WORK) & (graph.depends[1] >= 0) & (graph.kind[launch] == HOST)
    lag = graph.lag_ns[1] + np.where(of_host, saved[launch], 0)
    return replace(graph, duration_ns=durations, lag_ns=(graph.lag_ns[0], lag, graph.lag_ns[2]))
