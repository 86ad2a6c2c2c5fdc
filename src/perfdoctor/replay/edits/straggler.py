"""What changes in the graph of a late rank that does no more than the others? Less of all that it has too much of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from perfdoctor.metrics.communication.lateness import excess_ns, parts_ns
from perfdoctor.metrics.communication.skew import Skew
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.replay.edits import shorter as edits
from perfdoctor.replay.edits.chosen_work import work_rows
from perfdoctor.replay.graph.graph import WORK, Graph

_WORK = {"compute": "kernels", "copies": "copies"}


def too_much(late: Place, places: Sequence[Place], matched: Skew) -> Mapping[str, float]:
    """Of each thing that this rank does more of than the middle one of the others, how much of it is too much."""
    own, excess = parts_ns(late, matched), excess_ns(places, matched)[late.rank]
    return {name: min(ns / own[name], 1.0) for name, ns in excess.items() if ns and own[name]}


def in_time(graph: Graph, parts: Mapping[str, float], share: float) -> Graph:
    """The rank does so much less of what it does too much of: computing, copying, being idle for one cause or other."""
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
    """Host time in these stretches goes, and what device work waited there for nothing that is known."""
    shorter = edits.without_host_time(graph, idle, share)
    start = graph.recorded_start_ns
    waited = np.where(graph.kind == WORK, idle.overlap_ns(start - graph.extra_ns, start), 0)
    return replace(shorter, extra_ns=graph.extra_ns - (share * waited).astype(np.int64))
