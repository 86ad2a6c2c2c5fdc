"""In which order are the nodes of a graph simulated, and which at once? Streaks that wait for nothing in between.

A streak is a row of nodes along a thread or stream, each of which comes behind the one before, and of whose other
dependencies all are known when it begins. A host that launches a thousand kernels and then waits makes two: its calls,
and the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfdoctor.late import dataclass
from perfdoctor.model.timeline import Ints, Mask
from perfdoctor.replay.graph.graph import NOTHING, Graph

#: A node's position in the order of simulation, or that of what it depends on: as many as there may be nodes.
Positions = npt.NDArray[np.int32]


class Streak(NamedTuple):
    """Nodes `begin` to `end` in the order of simulation. Does any of them depend on a second, on a third node?"""

    begin: int
    end: int
    second: bool
    third: bool


@dataclass(frozen=True)
class SimulationOrder:
    """The order in which to simulate a graph.

    `nodes` are all nodes, in that order; `at` is the position of each. `until[k]` are the streaks in front of the k-th
    collective with other ranks, the last of them those behind all collectives; a collective itself is in none.
    `begins`: the positions at which streaks begin, and those of collectives.
    """

    depends: tuple[Ints, Ints, Ints]
    before: tuple[Mask, Mask, Mask]
    collectives: Ints
    nodes: Positions
    at: Positions
    begins: Ints
    until: tuple[tuple[Streak, ...], ...]

    def fits(self, graph: Graph) -> bool:
        """Does it hold for this graph, too? Dependencies may have been taken out, but none may have come in."""
        first, *others = zip(graph.depends, self.depends, strict=True)
        return (
            graph.before is self.before
            and graph.collectives is self.collectives
            and (first[0] is first[1] or np.array_equal(*first))
            and all(now is then or bool(((now == then) | (now == NOTHING)).all()) for now, then in others)
        )


def order_of(graph: Graph) -> SimulationOrder:
    chain, level = _chains(graph)
    part = (2 * np.searchsorted(graph.collectives, np.arange(len(graph)))).astype(np.int32)
    part[graph.collectives] += 1
    order = np.lexsort((chain, level, part)).astype(np.int32)
    starts = np.ones(order.size, dtype=bool)
    starts[1:] = False
    for column in (chain, level, part):
        starts[1:] |= np.diff(column[order]) != 0
    begins = np.flatnonzero(starts)
    at = np.empty(order.size, np.int32)
    at[order] = np.arange(order.size, dtype=np.int32)
    until = _by_part(graph, order, begins, part)
    return SimulationOrder(graph.depends, graph.before, graph.collectives, order, at, begins, until)


def _chains(graph: Graph) -> tuple[Positions, Positions]:
    """For each node its chain, and how many other chains must have been simulated one behind the other before it.

    The first node behind another one goes on with its chain. A chain is named after the node that it begins with.
    """
    depends = [
        np.where(flags | (on == NOTHING), 0, on + 1).astype(np.int32)
        for on, flags in zip(graph.depends, graph.before, strict=True)
    ]
    ahead, follower = np.unique(depends[0], return_index=True)
    follows = np.zeros(len(graph), dtype=bool)
    follows[follower[ahead > 0]] = True
    levels = [-1]  # of what is at place 0: nothing
    for goes_on, first, second, third in zip(follows.data, *(each.data for each in depends), strict=True):
        level, other = levels[second], levels[third]
        if other > level:  # noqa: PLR1730 max() takes three times as long
            level = other
        before = levels[first]
        if goes_on:
            levels.append(level + 1 if level >= before else before)
        else:
            levels.append(max(level, before) + 1)
    behind = np.where(follows, depends[0] - 1, np.arange(len(graph), dtype=np.int32))
    return _begun_by(behind), np.array(levels[1:], np.int32)


def _begun_by(behind: Positions) -> Positions:
    """The first node of each node's chain. `behind`: the one before it, itself where there is none."""
    while not np.array_equal(further := behind[behind], behind):
        behind = further
    return behind


def _by_part(graph: Graph, order: Positions, begins: Ints, part: Positions) -> tuple[tuple[Streak, ...], ...]:
    ends = np.append(begins[1:], order.size)
    used = [np.logical_or.reduceat(on[order] != NOTHING, begins) for on in graph.depends[1:]]
    columns: Sequence[list[int]] = [begins.tolist(), ends.tolist(), *(each.tolist() for each in used)]
    until: list[list[Streak]] = [[] for _ in range(graph.collectives.size + 1)]
    for of_part, *streak in zip(part[order[begins]].tolist(), *columns, strict=True):
        if of_part % 2 == 0:
            until[of_part // 2].append(Streak(*streak))
    return tuple(tuple(streaks) for streaks in until)
