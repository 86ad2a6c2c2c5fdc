"""How long does a step take when the graph is played?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.replay.graph import NOTHING, WORK, Graph

#: A change of pace has worked its way through queue and loader after a few repetitions.
REPETITIONS = 3


@dataclass(frozen=True)
class Played:
    """`step_ns`: the steady step, mean over ranks. `end_ns`: per graph, each node's end in the last repetition."""

    step_ns: float
    end_ns: tuple[np.ndarray, ...]


def play(graphs: Sequence[Graph], repetitions: int = REPETITIONS) -> Played:
    """Play all ranks together, some times in a row; the step is what the last time took, to the end of its work."""
    ranks = [_Player(graph) for graph in graphs]
    over: list[list[float]] = []
    for _ in range(repetitions):
        _together(ranks, graphs)
        over.append([rank.over for rank in ranks])
        for rank in ranks:
            rank.repeat()
    took = [(after - before) / graph.units for before, after, graph in zip(over[-2], over[-1], graphs, strict=True)]
    return Played(float(np.mean(took)), tuple(rank.ends for rank in ranks))


def _together(ranks: Sequence[_Player], graphs: Sequence[Graph]) -> None:
    """Once through all nodes; collectives that all recorded end for all when the last has come and it is sent."""
    for number in range(len(graphs[0].meetings)):
        arrived = [rank.until(int(graph.meetings[number])) for rank, graph in zip(ranks, graphs, strict=True)]
        end = max(arrived) + float(graphs[0].transfer_ns[number])
        for rank, graph in zip(ranks, graphs, strict=True):
            rank.ended(int(graph.meetings[number]), end)
    for rank, graph in zip(ranks, graphs, strict=True):
        rank.until(len(graph))


class _Player:
    """One graph being played. `times[:n]` are the ends of the repetition before, `times[n:2n]` those of this one."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.size = graph, len(graph)
        never = 2 * self.size
        index = [
            np.where(each == NOTHING, never, np.where(flags, each, each + self.size)).tolist()
            for each, flags in zip(graph.depends, graph.before, strict=True)
        ]
        lags = [each.tolist() for each in graph.lag_ns]
        self.nodes: list[tuple[int, int, int, int, int, int, int, int]] = list(
            zip(
                index[0],
                lags[0],
                index[1],
                lags[1],
                index[2],
                lags[2],
                (graph.extra_ns).tolist(),
                graph.duration_ns.tolist(),
                strict=True,
            )
        )
        ends = (graph.recorded_end_ns - graph.period_ns - graph.clock_ns).astype(np.float64).tolist()
        self.times: list[float] = [*ends, *([0.0] * self.size), float("-inf")]
        self.works = np.flatnonzero(graph.kind == WORK).tolist()
        self.at = 0

    def until(self, node: int) -> float:
        """Play up to a node, itself not; returns when it can start."""
        times, size = self.times, self.size
        for number in range(self.at, node):
            a, la, b, lb, c, lc, extra, duration = self.nodes[number]
            start = times[a] + la
            other = times[b] + lb
            if other > start:  # noqa: PLR1730 max() takes three times as long, and this is where the time goes
                start = other
            other = times[c] + lc
            if other > start:  # noqa: PLR1730
                start = other
            times[size + number] = start + extra + duration
        self.at = node
        return self._start(node) if node < size else 0.0

    def _start(self, node: int) -> float:
        a, la, b, lb, c, lc, extra, _ = self.nodes[node]
        return max(self.times[a] + la, self.times[b] + lb, self.times[c] + lc) + extra

    def ended(self, node: int, end: float) -> None:
        self.times[self.size + node] = end
        self.at = node + 1

    @property
    def over(self) -> float:
        """When all work of this repetition has ended."""
        return float(max(self.times[self.size + node] for node in self.works))

    @property
    def ends(self) -> np.ndarray:
        return np.array(self.times[: self.size])

    def repeat(self) -> None:
        """What was this repetition is the one before."""
        self.times[: self.size] = self.times[self.size : 2 * self.size]
        self.at = 0
