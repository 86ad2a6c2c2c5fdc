"""Which nodes of several ranks are the same collective, and how far are their clocks apart?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.communication.skew import Skew, skew
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Ints
from perfdoctor.replay.graph.build import ALL_UNITS, MOST_WORK, graph_of
from perfdoctor.replay.graph.graph import WORK, Graph
from perfdoctor.replay.graph.without_gpu import host_graph


def graphs_of(run: Run, *, paced: bool = True, most_work: int = MOST_WORK) -> tuple[Graph, ...]:
    """A graph for each place of a run, joined at the collectives that all ranks recorded; () where one has none."""
    most = max(most_work // max(len(run.places), 1), 1)

    def graph(place: Place, most_units: int) -> Graph | None:
        if isinstance(place, HostPlace):
            return host_graph(place, paced=paced, most_units=most_units)
        return graph_of(place, most, paced=paced, most_units=most_units)

    def graphs(most_units: int) -> tuple[Graph, ...]:
        known = tuple(found for place in run.places if (found := graph(place, most_units)) is not None)
        return known if len(known) == len(run.places) else ()

    known = graphs(ALL_UNITS)
    units = min((graph.units for graph in known), default=0)
    if any(graph.units != units for graph in known):  # together they can only simulate equally many steps
        known = graphs(units)
    if run.stands_for and known:
        known = tuple(replace(graph, stands_for=count) for graph, count in zip(known, run.stands_for, strict=True))
    # Steps are simulated as they were launched: the last of them may lie behind the window.
    matched = skew(run, everywhere=True) if len(known) > 1 else None
    return _joined(known, matched) if matched is not None else known


def _joined(graphs: Sequence[Graph], matched: Skew) -> tuple[Graph, ...]:
    """The graphs with their common collectives; as they are where these come in another order on another rank."""
    if [graph.place.rank for graph in graphs] != list(matched.ranks) or len({graph.units for graph in graphs}) > 1:
        return tuple(graphs)
    everybody = np.flatnonzero(matched.taking_part.all(axis=0))
    nodes = np.stack([_nodes(graph, matched.rows[number, everybody]) for number, graph in enumerate(graphs)])
    inside = (nodes != UNKNOWN).all(axis=0)
    nodes, columns = nodes[:, inside], everybody[inside]
    order = np.argsort(nodes[0], kind="stable")
    nodes, columns = nodes[:, order], columns[order]
    if not columns.size or (np.diff(nodes, axis=1) <= 0).any():
        return tuple(graphs)
    ends = np.stack([graph.recorded_end_ns[own] for graph, own in zip(graphs, nodes, strict=True)])
    apart = np.median(ends - ends[0], axis=1).astype(np.int64)
    transfer = matched.shortest_ns[columns]
    return tuple(
        replace(graph, collectives=own, transfer_ns=transfer, clock_ns=int(clock))
        for graph, own, clock in zip(graphs, nodes, apart, strict=True)
    )


def _nodes(graph: Graph, rows: Ints) -> Ints:
    """The nodes of these collectives, given as rows of the place's recorded ones; UNKNOWN outside the period."""
    work_rows = graph.place.work.rows["collectives"][rows]
    works = np.flatnonzero(graph.kind == WORK)
    order = works[np.argsort(graph.work_row[works], kind="stable")]
    place = np.minimum(np.searchsorted(graph.work_row[order], work_rows), order.size - 1)
    return np.where(graph.work_row[order][place] == work_rows, order[place], UNKNOWN)
