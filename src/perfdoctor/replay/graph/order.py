"""In which order are the nodes of a graph simulated, and which at once? Streaks that wait for nothing in between.

A streak is a row of nodes along a thread or stream, each of which comes behind the one before, and of whose other
dependencies all are known when it begins. A host that launches a thousand kernels and then waits makes two: its calls,
and the kernels.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.late import dataclass
from perfdoctor.model.timeline import Ints, Mask
from perfdoctor.replay.graph.graph import NOTHING, Graph

#: A node's position in the order of simulation, or that of what it depends on: as many as there may be nodes.
Positions = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Streak:
    """Nodes `begin` to `end` in the order of simulation. Does any of them depend on a second, on a third node?

    `number`: among all streaks and collectives, in that order.
    """

    number: int
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
    """For each node its chain, and how many other chains must have been simulated one behind the other before it."""
    depends = [
        np.where(flags | (on == NOTHING), 0, on + 1).astype(np.int32)
        for on, flags in zip(graph.depends, graph.before, strict=True)
    ]
    chains, levels = array("i", [-1]), array("i", [-1])  # of what is at place 0: nothing
    followed = bytearray(len(graph) + 1)
    for first, second, third in zip(*(each.data for each in depends), strict=True):
        level = max(levels[second], levels[third])
        if first and not followed[first]:
            followed[first] = 1
            chains.append(chains[first])
            level = level + 1 if level >= levels[first] else levels[first]
        else:
            chains.append(len(chains))
            level = max(level, levels[first]) + 1
        levels.append(level)
    return np.array(chains[1:], np.int32), np.array(levels[1:], np.int32)


def _by_part(graph: Graph, order: Positions, begins: Ints, part: Positions) -> tuple[tuple[Streak, ...], ...]:
    ends = np.append(begins[1:], order.size)
    used = [np.logical_or.reduceat(on[order] != NOTHING, begins) for on in graph.depends[1:]]
    columns: Sequence[list[int]] = [begins.tolist(), ends.tolist(), *(each.tolist() for each in used)]
    until: list[list[Streak]] = [[] for _ in range(graph.collectives.size + 1)]
    for number, (of_part, *streak) in enumerate(zip(part[order[begins]].tolist(), *columns, strict=True)):
        if of_part % 2 == 0:
            until[of_part // 2].append(Streak(number, *streak))
    return tuple(tuple(streaks) for streaks in until)
