"""Which work, if it were a little shorter, would make the step shorter? The critical path.

From the last work that ends, back to what each node waited for last, over one whole period: host, device and other
ranks. Together the pieces are as long as the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.behind_idle import culprits, host_rows
from perfdoctor.metrics.accounting.idle_causes import NAMED_CAUSES
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask
from perfdoctor.records.predictions import CriticalPath, PathPiece
from perfdoctor.replay.graph.graph import HOST, NOTHING, WAIT_END, WORK, Graph
from perfdoctor.replay.graph.simulate import Simulation

#: Host time of the named causes first; the rest is launching work, and Python in between.
#: A loader's own pace is no wait of the step: its workers make batches while the step computes.
KINDS = ("compute", "communication", "copies", *NAMED_CAUSES, "loader", "host", "latency")
_OF_SIGNAL = {"kernels": "compute", "collectives": "communication", "copies": "copies"}


class _Link(Struct, frozen=True):
    """One node of the path, the number of its rank, and by which dependency (0, 1, 2) it was held."""

    rank: int
    node: int
    by: int


def critical_path(graphs: Sequence[Graph], simulation: Simulation, most_pieces: int = 20) -> CriticalPath:
    """The path of the steady step that was simulated. `most_pieces`: only the longest pieces are named."""
    units = graphs[0].units
    spent = _added_up(graphs, list(_trace(graphs, simulation)), simulation.step_ns * units)
    pieces = [PathPiece(kind, name, ns / units, count / units) for (kind, name), (ns, count) in spent.items() if ns > 0]
    pieces.sort(key=lambda piece: (-piece.ns_per_step, piece.name))
    whole = sum(piece.ns_per_step for piece in pieces)
    share: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    for piece in pieces:
        share[piece.kind] += piece.ns_per_step / whole
    shares = {kind: part for kind, part in share.items() if part}
    return CriticalPath(simulation.step_ns, shares, tuple(pieces[:most_pieces]))


def _added_up(
    graphs: Sequence[Graph], links: Sequence[_Link], period_ns: float
) -> Mapping[tuple[str, str], tuple[float, float]]:
    """Time in ns and count of each kind and name; the last link counts as far as it lies in the period."""
    most = [
        each
        for number, graph in enumerate(graphs)
        for each in _spent(graph, [x for x in links[:-1] if x.rank == number])
    ]
    last = list(_spent(graphs[links[-1].rank], links[-1:]))
    left, long = period_ns - sum(ns for _, _, ns, _ in most), sum(ns for _, _, ns, _ in last)
    part = min(max(left / long, 0.0), 1.0) if long > 0 else 0.0
    spent: dict[tuple[str, str], tuple[float, float]] = {}
    for kind, name, ns, count in (*most, *((kind, name, ns * part, count * part) for kind, name, ns, count in last)):
        before, times = spent.get((kind, name), (0.0, 0.0))
        spent[kind, name] = before + ns, times + count
    return spent


def _trace(graphs: Sequence[Graph], simulation: Simulation) -> Iterator[_Link]:
    """The links of the path, from the last work back over one whole period."""
    bound = [_bound(graph, ends, simulation) for graph, ends in zip(graphs, simulation.end_ns, strict=True)]
    collectives = [{int(node): each for each, node in enumerate(graph.collectives)} for graph in graphs]
    works = [np.flatnonzero(graph.kind == WORK) for graph in graphs]
    rank = max(range(len(graphs)), key=lambda each: float(simulation.end_ns[each][works[each]].max()))
    node = int(works[rank][simulation.end_ns[rank][works[rank]].argmax()])
    begun, back = float(simulation.end_ns[rank][node]), 0.0
    period = simulation.step_ns * graphs[rank].units
    while True:
        met = collectives[rank].get(node)
        if met is not None:  # the last to come is whom all waited for
            arrived = [bound[each][2][int(graph.collectives[met])] for each, graph in enumerate(graphs)]
            rank = int(np.argmax(arrived))
            node = int(graphs[rank].collectives[met])
        by = int(bound[rank][0][node])
        yield _Link(rank, node, by)
        back += period if bound[rank][1][node] else 0.0
        node = int(graphs[rank].depends[by][node])
        if node == NOTHING or begun - (float(simulation.end_ns[rank][node]) - back) >= period:
            return


def _bound(graph: Graph, ends: np.ndarray, simulation: Simulation) -> tuple[Ints, Mask, np.ndarray]:
    """For each node the dependency that ended last, whether it is of the repetition before, and the earliest start."""
    period = simulation.step_ns * graph.units
    moments = np.stack(
        [
            np.where(depends == NOTHING, -np.inf, ends[np.maximum(depends, 0)] - np.where(before, period, 0.0) + lag)
            for depends, before, lag in zip(graph.depends, graph.before, graph.lag_ns, strict=True)
        ]
    )
    by = moments.argmax(axis=0)
    before = np.choose(by, graph.before)
    return by, before, moments.max(axis=0) + graph.extra_ns


def _spent(graph: Graph, links: Sequence[_Link]) -> Iterator[tuple[str, str, float, float]]:
    """Kind, name, ns and count of one rank's nodes on the path."""
    if not links:
        return
    nodes, by = np.array([link.node for link in links]), np.array([link.by for link in links])
    kind, lag = graph.kind[nodes], np.stack(graph.lag_ns)[by, nodes]
    works = nodes[kind == WORK]
    yield from _of_work(graph, works)
    waits = (lag + graph.extra_ns[nodes])[kind == WORK]
    late = float(waits.clip(min=0).sum())
    yield "latency", "from launch, event or the work before to the start", late, float(works.size)
    back = float((lag + graph.extra_ns[nodes] + graph.duration_ns[nodes])[kind == WAIT_END].sum())
    yield "latency", "from the end of work to the end of the call that waits", back, float((kind == WAIT_END).sum())
    host, of_loader = nodes[kind == HOST], (by == 1)[kind == HOST]
    paced = float(lag[kind == HOST][of_loader].sum())
    yield "loader", "the loader's own pace", paced, float(of_loader.sum())
    # Work may start before its call returns, which stands behind it on the way back.
    early = np.zeros(nodes.size, np.int64)
    early[1:][kind[:-1] == WORK] = np.maximum(-waits[: int((kind[:-1] == WORK).sum())], 0)
    yield from _of_host(graph, host, host[~of_loader], early[kind == HOST])


def _of_work(graph: Graph, works: Ints) -> Iterator[tuple[str, str, float, float]]:
    """Kind, name, ns and count of device work on the path."""
    place = graph.place
    for signal, rows in place.work.rows.items():
        name = place.recorded(signal).name
        row = np.full(len(place.work), UNKNOWN)
        row[rows] = np.arange(rows.size)
        own = works[row[graph.work_row[works]] != UNKNOWN]
        for each, times, ns in name.take(row[graph.work_row[own]]).sums(graph.duration_ns[own]):
            yield _OF_SIGNAL[signal], each, ns, float(times)


def _of_host(graph: Graph, calls: Ints, behind_host: Ints, early_ns: Ints) -> Iterator[tuple[str, str, float, float]]:
    """Kind, name, ns and count of host time on the path: calls, and the time between them by the innermost range.

    `early_ns`: for each call how long before its end the work began that follows it on the path.
    """
    end = graph.recorded_end_ns
    gaps = Intervals.of(graph.gap_start_ns[behind_host], graph.gap_start_ns[behind_host] + graph.lag_ns[0][behind_host])
    begun = (end - graph.duration_ns)[calls]
    rest = gaps | Intervals.of(begun, np.maximum(end[calls] - early_ns, begun))
    place = graph.place
    for cause in NAMED_CAUSES:
        part = rest & place.host.explicit[cause]
        if part:
            yield cause, cause.replace("_", " "), float(part.total_ns), float(len(part))
        rest = rest - part
    ops = host_rows(place, ("ops",))
    between = rest - ops.intervals  # a range around the backward pass waits for its thread
    in_ops, outside = culprits(rest, ops), culprits(between, host_rows(place, ("ranges", "functions")))
    for each in in_ops:  # without a GPU, the thread's ops do not launch work: they are the work
        yield "host" if place.device is not None else "compute", each.name, float(each.idle_ns), float(each.count)
    for each in outside:
        yield "host", each.name, float(each.idle_ns), float(each.count)
    named = [*in_ops, *outside]
    left = rest.total_ns - sum(each.idle_ns for each in named)
    yield "host", "Python and launches" + " between ops" * bool(named), left, 0.0
