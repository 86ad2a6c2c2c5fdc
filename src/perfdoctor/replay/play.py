"""How long does a step take when the graph is played?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.replay.graph import NOTHING, WORK, Graph

#: Played so often, the unchanged graph and most changed ones have their steady pace.
REPETITIONS = 3
#: A host that is far ahead holds a slower pace of its own back until its lead is used up. So many repetitions of what
#: each node gains or loses are skipped at once to see that, and so often.
_SKIPPED, _SKIPS = 1_000, 3
#: No node may fall behind the work by more than this share of the step.
_STEADY = 1e-4


@dataclass(frozen=True)
class Played:
    """`step_ns`: the steady step, mean over ranks. `end_ns`: per graph, each node's end in the last repetition."""

    step_ns: float
    end_ns: tuple[np.ndarray, ...]


def play(graphs: Sequence[Graph], repetitions: int = REPETITIONS) -> Played:
    """Play all ranks together, some times in a row; the step is what the last time took, to the end of its work.

    Where that is not the steady pace yet, what is ahead moves on at its pace, and what is behind at its own.
    """
    ranks = [_Player(graph) for graph in graphs]
    for _ in range(repetitions):
        _together(ranks, graphs)
    for _ in range(_SKIPS):
        if all(rank.is_steady() for rank in ranks):
            break
        for rank in ranks:
            rank.skip(_SKIPPED)
        _together(ranks, graphs)
        _together(ranks, graphs)
    steps = [rank.took / graph.units for rank, graph in zip(ranks, graphs, strict=True)]
    return Played(float(np.mean(steps)), tuple(rank.ends for rank in ranks))


def _together(ranks: Sequence[_Player], graphs: Sequence[Graph]) -> None:
    """Once through all nodes; collectives that all recorded end for all when the last has come and it is sent."""
    for rank in ranks:
        rank.begin()
    for number in range(len(graphs[0].meetings)):
        nodes = [int(graph.meetings[number]) for graph in graphs]
        arrived = [rank.until(node) for rank, node in zip(ranks, nodes, strict=True)]
        end = max(arrived) + min(float(graph.transfer_ns[number]) for graph in graphs)
        for rank, node in zip(ranks, nodes, strict=True):
            rank.ended(node, end)
    for rank in ranks:
        rank.until(rank.size)


class _Player:
    """One graph being played.

    `times[0]` is never; then come the ends of all nodes in the repetition before, and those of this one so far.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, self.size = graph, len(graph)
        self.nodes = _nodes(graph)
        before = (graph.recorded_end_ns - graph.period_ns - graph.clock_ns).astype(np.float64)
        self.times: list[float] = [float("-inf"), *before.tolist()]
        self.works = np.flatnonzero(graph.kind == WORK)

    @property
    def at(self) -> int:
        """The node to be played next."""
        return len(self.times) - 1 - self.size

    def until(self, node: int) -> float:
        """Play up to a node, itself not; returns when it can start. Here is where the time goes."""
        times = self.times
        append = times.append
        for a, lag_a, b, lag_b, c, lag_c, takes in self.nodes[self.at : node]:
            start = times[a] + lag_a
            if b:
                other = times[b] + lag_b
                if other > start:  # noqa: PLR1730 max() takes three times as long
                    start = other
                if c:
                    other = times[c] + lag_c
                    if other > start:  # noqa: PLR1730
                        start = other
            append(start + takes)
        return self._start(node) if node < self.size else 0.0

    def _start(self, node: int) -> float:
        a, lag_a, b, lag_b, c, lag_c, takes = self.nodes[node]
        start = max(self.times[a] + lag_a, self.times[b] + lag_b, self.times[c] + lag_c)
        return start + takes - int(self.graph.duration_ns[node])

    def ended(self, node: int, end: float) -> None:
        assert node == self.at
        self.times.append(end)

    def begin(self) -> None:
        """What was this repetition is the one before."""
        if self.at:
            self.times = [self.times[0], *self.times[self.size + 1 :]]

    @property
    def ends(self) -> np.ndarray:
        """Each node's end in this repetition."""
        return np.array(self.times[self.size + 1 :])

    @property
    def gained(self) -> np.ndarray:
        """By how much each node ended later than in the repetition before."""
        gained: np.ndarray = self.ends - np.array(self.times[1 : self.size + 1])
        return gained

    @property
    def took(self) -> float:
        """From the end of all work of the repetition before to the end of all work of this one."""
        return float(self.ends[self.works].max() - np.array(self.times[1 : self.size + 1])[self.works].max())

    def is_steady(self) -> bool:
        """Does nothing come later and later behind the work's pace? What does will hold it up some day."""
        took = self.took
        return bool(self.gained.max() <= took + _STEADY * abs(took))

    def skip(self, repetitions: int) -> None:
        """Each node goes on at its own pace for some repetitions."""
        self.times[self.size + 1 :] = (self.ends + repetitions * self.gained).tolist()


def _nodes(graph: Graph) -> list[tuple[int, int, int, int, int, int, int]]:
    """For each node the places in `times` of what it depends on, each with its lag, and what it takes itself.

    The place 0 is nothing. Places that are used come first, so that the second need not be looked at without the first.
    """
    depends = np.stack(graph.depends)
    place = np.where(depends == NOTHING, 0, depends + 1 + np.where(np.stack(graph.before), 0, len(graph)))
    order = np.argsort(place == 0, axis=0, kind="stable")
    place = np.take_along_axis(place, order, axis=0)
    lag = np.take_along_axis(np.stack(graph.lag_ns), order, axis=0)
    columns = [each.tolist() for pair in zip(place, lag, strict=True) for each in pair]
    return list(zip(*columns, (graph.extra_ns + graph.duration_ns).tolist(), strict=True))
