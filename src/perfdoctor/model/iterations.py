"""Where does one iteration of a server end and the next begin: by its ranges, or by the CUDA graphs that it replays?"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.device_work import DeviceWork
from perfdoctor.model.host_rows import on_busiest_thread
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import serving as names

#: Fewer are no rhythm; and a server schedules an iteration while the one before runs, so that where a single one begins
#: on the device is not known.
_FEWEST = 3
#: Graphs stand for iterations where at least this share of the device's busy time is theirs.
_LEAST_SHARE = 0.5


def iteration_ranges(ranges: Frame) -> Frame | None:
    """The ranges around the iterations of one rank's server, one behind the other on one thread; None without such."""
    for pattern in (names.SERVER_ITERATION, names.ITERATION):
        if len(rows := ranges.named(pattern)):
            rows = on_busiest_thread(rows)
            if len(rows) >= _FEWEST and not (rows.start_ns[1:] < rows.end_ns[:-1]).any():
                return rows
    return None


def graph_starts(work: DeviceWork, calls: Frame) -> Ints:
    """When the first work of each iteration began, going by graphs; empty where graphs are not most of the work.

    A server may replay one graph an iteration, or one a layer: what lies between two iterations are copies from the
    host, or to memory for which the host waits (the sampled tokens).
    """
    launched = work.launch != UNKNOWN
    is_graph = np.zeros(len(work), dtype=bool)
    is_graph[launched] = calls.name.matches(cuda_names.GRAPH_LAUNCH)[work.launch[launched]]
    took = work.end_ns - work.start_ns
    if not is_graph.any() or took[is_graph].sum() < _LEAST_SHARE * took.sum():
        return np.empty(0, np.int64)
    copies = np.flatnonzero(work.is_h2d | work.is_blocking_copy)
    graphs = np.flatnonzero(is_graph)
    behind = np.searchsorted(copies, graphs)  # how many copies lie before each piece of work of a graph
    first = np.append(True, np.diff(behind) > 0)
    starts: Ints = work.start_ns[graphs[first]]
    return starts
