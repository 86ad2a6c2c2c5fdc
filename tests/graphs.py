"""Graphs by hand, random drawn timelines, and a machine that simulates a graph in plain Python: slowly, in its own way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from builders import draw
from hypothesis import Phase, assume, settings
from hypothesis import strategies as st

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import UNKNOWN, Timeline
from perfdoctor.replay.graph.build import graph_of
from perfdoctor.replay.graph.graph import HOST, NOTHING, WAIT_END, WORK, Graph


@dataclass(frozen=True)
class Node:
    """`on`: up to three of (name, lag, is it of the repetition before?). `call`, `work`: rows."""

    name: str
    kind: int
    start: int
    end: int
    on: tuple[tuple[str, int, bool], ...]
    extra: int = 0
    call: int = UNKNOWN
    work: int = UNKNOWN
    gap: tuple[int, int] = (0, 0)
    loader_wait: int = 0


def by_hand(nodes: Iterable[Node], period: int, **columns) -> Graph:
    """Nodes in an order in which each comes after what it depends on. `columns` replace those of the Graph."""
    nodes = list(nodes)
    number = {node.name: place for place, node in enumerate(nodes)}
    ties = [[*node.on, *[("", 0, False)] * (3 - len(node.on))] for node in nodes]
    whole = {
        "place": None,
        "kind": _numbers(node.kind for node in nodes).astype(np.int8),
        "recorded_start_ns": _numbers(node.start for node in nodes),
        "recorded_end_ns": _numbers(node.end for node in nodes),
        "duration_ns": _numbers(0 if node.kind == WAIT_END else node.end - node.start for node in nodes),
        "extra_ns": _numbers(node.extra for node in nodes),
        "depends": tuple(_numbers(number.get(tie[k][0], NOTHING) for tie in ties) for k in range(3)),
        "lag_ns": tuple(_numbers(tie[k][1] for tie in ties) for k in range(3)),
        "before": tuple(_numbers(tie[k][2] for tie in ties).astype(bool) for k in range(3)),
        "call_row": _numbers(node.call for node in nodes),
        "work_row": _numbers(node.work for node in nodes),
        "gap_start_ns": _numbers(node.gap[0] for node in nodes),
        "gap_end_ns": _numbers(node.gap[1] for node in nodes),
        "loader_wait_ns": _numbers(node.loader_wait for node in nodes),
        "period_ns": period,
        "units": 1,
    }
    return Graph(**{**whole, **columns})


def _numbers(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), dtype=np.int64)


def graph(drawn: Timeline, **settings) -> Graph:
    """That of the one device of a picture."""
    (place,) = prepare(drawn).places
    found = graph_of(place, **settings)
    assert found is not None
    return found


# ---- a run to fix ----------------------------------------------------------------------------------------------------

#: The signals that a replay needs, and all others of a picture.
EVERYTHING = ["kernels", "copies", "collectives", "calls", "ops", "ranges", "functions", "os_calls", "overheads"]
MS = 1_000_000


def faulty(**more):
    """Per step of 100 ms: 10 of a copy, 40 of fp32 matmul, 30 of others; for 29 the host waits for its next batch.

    Of these 29 the device stands still for 14. Without them the host needs 71 ms for a step.
    """
    drawn = {
        "copies": "h" * 10 + " " * 90,
        "kernels": " " * 10 + "S" * 40 + "G" * 30 + " " * 20,
        "host": ["cll" + " " * 97, " " * 70 + "i" * 29 + " ", "o"],
        "host_ahead": 5,
        "repeat": 6,
        "unit_us": 1000,
        "recorded": EVERYTHING,
    }
    return draw(**{**drawn, **more})


# ---- the same graph, simulated by other means ------------------------------------------------------------------------


def simulated(graphs: list[Graph], repetitions: int = 40) -> list[list[list[float]]]:
    """When each node ends, by repetition and graph. One node after the other, whichever can be: no order is assumed."""
    ends = [[[float(end) - each.period_ns - each.clock_ns for end in each.recorded_end_ns] for each in graphs]]
    for _ in range(repetitions):
        ends.append(_once([_plain(each) for each in graphs], graphs, ends[-1]))
    return ends[1:]


def _plain(one: Graph) -> list[tuple[list[tuple[int, int, bool]], int]]:
    columns = [
        [(int(on), int(lag), bool(flag)) for on, lag, flag in zip(*column, strict=True)]
        for column in zip(one.depends, one.lag_ns, one.before, strict=True)
    ]
    takes = [int(extra + duration) for extra, duration in zip(one.extra_ns, one.duration_ns, strict=True)]
    return [([tie for tie in ties if tie[0] != NOTHING], own) for *ties, own in zip(*columns, takes, strict=True)]


def _once(plain: list, graphs: list[Graph], previous: list[list[float]]) -> list[list[float]]:
    now: list[list[float | None]] = [[None] * len(nodes) for nodes in plain]
    collective = {(rank, int(node)): n for rank, each in enumerate(graphs) for n, node in enumerate(each.collectives)}
    todo = [(rank, node) for rank, nodes in enumerate(plain) for node in range(len(nodes))]
    arrived: dict[int, dict[int, float]] = {}
    while todo:
        waiting = []
        for rank, node in todo:
            ties, takes = plain[rank][node]
            known = [(previous if flag else now)[rank][on] for on, _, flag in ties]
            if any(moment is None for moment in known):
                waiting.append((rank, node))
                continue
            start = max((moment + lag for moment, (_, lag, _) in zip(known, ties, strict=True)), default=0.0)
            if (rank, node) in collective:
                number = collective[rank, node]
                here = arrived.setdefault(number, {})
                here[rank] = start + int(graphs[rank].extra_ns[node])
                if len(here) < len(graphs):
                    waiting.append((rank, node))
                    continue
                over = max(here.values()) + min(int(each.transfer_ns[number]) for each in graphs)
                now[rank][node] = over
            else:
                now[rank][node] = start + takes
        assert len(waiting) < len(todo) or arrived, "these nodes wait for each other"
        todo = waiting
    return now


def simulated_step(graphs: list[Graph], repetitions: int = 40, last: int = 12) -> float:
    """The mean over the last repetitions, and over ranks."""
    repetitions_ends = simulated(graphs, repetitions)
    works = [[node for node, kind in enumerate(each.kind) if kind == WORK] for each in graphs]
    over = [[max(ends[rank][node] for node in own) for rank, own in enumerate(works)] for ends in repetitions_ends]
    steps = [(over[-1][rank] - over[-1 - last][rank]) / last / each.units for rank, each in enumerate(graphs)]
    return sum(steps) / len(steps)


#: A random picture takes a while to simulate by hand, and a smaller one that fails as well shows no more.
FEW = settings(max_examples=settings.default.max_examples // 2, phases=[Phase.explicit, Phase.generate])

# ---- random pictures -------------------------------------------------------------------------------------------------

WIDTH = 40


def _lane(chars: str, size: int) -> st.SearchStrategy[str]:
    piece = st.tuples(st.sampled_from(chars + " "), st.integers(1, 5)).map(lambda pair: pair[0] * pair[1])
    return st.lists(piece, min_size=3, max_size=size).map(lambda pieces: "".join(pieces)[:WIDTH].ljust(WIDTH))


@st.composite
def pictures(draw_from: st.DrawFn) -> dict[str, object]:
    """Lanes of one step: streams that begin with some work, launches before the work, calls that wait, a second thread."""
    kernels = draw_from(st.lists(_lane("#+e", 12), min_size=1, max_size=3))
    kernels[0] = "##" + kernels[0][2:]
    copies = draw_from(_lane("hd", 6))
    host = draw_from(_lane("lsq", 14))
    second = draw_from(_lane("lwa", 8))
    works = sum(len(lane.split()) for lane in (*kernels, copies))
    launches = (host + second).count("l")
    assume(1 <= launches <= works)
    return {
        "kernels": kernels,
        "copies": copies,
        "host": {1: host, 2: second} if second.strip() else {1: host},
        "host_ahead": draw_from(st.integers(0, 2 * WIDTH)),
        "launched_us_before": 50,
    }


def random_timelines(repeat: int = 5) -> st.SearchStrategy[Timeline]:
    return pictures().map(lambda lanes: draw(**lanes, repeat=repeat))


@st.composite
def random_graphs(draw_from: st.DrawFn, repeat: int = 5) -> Graph:
    """Of a random timeline that has steps."""
    drawn = draw_from(random_timelines(repeat))
    places = prepare(drawn).places
    assume(len(places) == 1)
    found = graph_of(places[0])
    assume(found is not None)
    assert found is not None
    return found


__all__ = [
    "EVERYTHING",
    "FEW",
    "HOST",
    "MS",
    "WAIT_END",
    "WORK",
    "Node",
    "by_hand",
    "faulty",
    "graph",
    "random_graphs",
    "random_timelines",
    "simulated",
]
