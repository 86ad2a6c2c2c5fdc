"""How does the graph change when a late rank has no more to do than the others? What exceeds theirs goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from perfdoctor.metrics.communication.lateness import excess_ns, parts_ns
from perfdoctor.metrics.communication.skew import Skew
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.replay.edits import shorter as edits
from perfdoctor.replay.edits.chosen_work import work_rows
from perfdoctor.replay.graph.graph import WORK, Graph

_WORK = {"compute": "kernels", "copies": "copies"}


def too_much(late: Place, places: Sequence[Place], matched: Skew) -> Mapping[str, float]:
    """The excess share of each activity on which this rank spends more than the median of the others."""
    own, excess = parts_ns(late, matched), excess_ns(places, matched)[late.rank]
    return {name: min(ns / own[name], 1.0) for name, ns in excess.items() if ns and own[name]}


def in_time(graph: Graph, parts: Mapping[str, float], share: float) -> Graph:
    """The graph with `share` of these parts taken out of computing, copying and idle time by cause."""
    for name, part in parts.items():
        if name == "compute" and graph.place.device is None:  # without a GPU it is the thread that computes
            graph = edits.without_host_time(graph, graph.place.compute, share * part)
        elif name in _WORK:
            graph = edits.with_shorter_work(graph, work_rows(graph.place, (_WORK[name],), {}), share * part)
        else:
            graph = _without_idle(graph, graph.place.idle_causes[name], share * part)
            graph = edits.without_loader_waits(graph, share * part) if name == "input_wait" else graph
    return graph


def _without_idle(graph: Graph, idle: Intervals, share: float) -> Graph:
    """The graph without host time in these stretches, and without unexplained waits of device work there."""
    shorter = edits.without_host_time(graph, idle, share)
    start = graph.recorded_start_ns
    waited = np.where(graph.kind == WORK, idle.overlap_ns(start - graph.extra_ns, start), 0)
    return replace(shorter, extra_ns=graph.extra_ns - (share * waited).astype(np.int64))
