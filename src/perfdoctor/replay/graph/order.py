"""In which order are the nodes of a graph simulated, and which at once? Streaks that wait for nothing in between.

A streak is a row of nodes along a thread or stream, each of which comes behind the one before, and of whose other
dependencies all are known when it begins. A host that launches a thousand kernels and then waits makes two: its calls,
and the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from perfdoctor.model.timeline import Ints, Mask
from perfdoctor.replay.graph.graph import NOTHING, Graph

#: A node's position in the order of simulation, or that of what it depends on: as many as there may be nodes.
Positions = npt.NDArray[np.int32]


#: Streaks of fewer nodes are quicker to simulate one by one.
_FEW = 16


class Streak(NamedTuple):
    """Nodes `begin` to `end` in the order of simulation. Does any of them depend on a second, on a third node?"""

    begin: int
    end: int
    second: bool
    third: bool


class NodeRange(NamedTuple):
    """The nodes `begin` to `end`, between two collectives, and the long streaks among them."""

    begin: int
    end: int
    streaks: tuple[Streak, ...]


class SimulationOrder(Struct, frozen=True):
    """The order in which to simulate a graph.

    `nodes` are all nodes, in that order; `at` is the position of each. `until[k]` is the part in front of the k-th
    collective with other ranks, the last of them that behind all collectives; a collective itself is in none.
    `begins`: the positions at which streaks begin, and those of collectives. `on`: `positions` of the dependencies.
    """

    depends: tuple[Ints, Ints, Ints]
    before: tuple[Mask, Mask, Mask]
    collectives: Ints
    nodes: Positions
    at: Positions
    begins: Ints
    until: tuple[NodeRange, ...]
    on: tuple[Positions, Positions, Positions]

    def fits(self, graph: Graph) -> bool:
        """Does the order hold for this graph, too? Dependencies may have been taken out, but none may have come in."""
        first, *others = zip(graph.depends, self.depends, strict=True)
        return (
            graph.before is self.before
            and graph.collectives is self.collectives
            and (first[0] is first[1] or np.array_equal(*first))
            and all(now is then or bool(((now == then) | (now == NOTHING)).all()) for now, then in others)
        )


def order_of(graph: Graph, shortest: int = _FEW) -> SimulationOrder:
    """The order of a graph. `shortest`: the number of nodes from which on a streak is simulated at once."""
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
    first, second, third = (positions(*each, order, at) for each in zip(graph.depends, graph.before, strict=True))
    until = tuple(_parts(graph, order, begins, part, shortest))
    on = first, second, third
    return SimulationOrder(graph.depends, graph.before, graph.collectives, order, at, begins, until, on)


def positions(depends: Ints, before: Mask, nodes: Positions, at: Positions) -> Positions:
    """The position of what each node depends on, in the order of simulation, among the ends of all nodes.

    First come those of the repetition before, then those of this one, then one that is never.
    """
    on = depends[nodes]
    found: Positions = at[on]
    found[~before[nodes]] += nodes.size
    found[on == NOTHING] = 2 * nodes.size
    return found


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
    while not np.array_equal(further := behind[behind], behind):  # from node to node to the first of each chain
        behind = further
    return behind, np.array(levels[1:], np.int32)


def _parts(graph: Graph, order: Positions, begins: Ints, part: Positions, shortest: int) -> Iterator[NodeRange]:
    """The nodes before, between and behind the collectives. `part`: for each node in which of these it is."""
    ends = np.append(begins[1:], order.size)
    edges = np.searchsorted(part[order], np.arange(2 * graph.collectives.size + 2)).tolist()
    long = np.flatnonzero(ends - begins >= shortest)
    used = [np.logical_or.reduceat(on[order] != NOTHING, begins)[long] for on in graph.depends[1:]]
    streaks = list(map(Streak, begins[long].tolist(), ends[long].tolist(), *(each.tolist() for each in used)))
    of_part = np.searchsorted(part[order[begins[long]]], np.arange(2 * graph.collectives.size + 2)).tolist()
    for number in range(0, 2 * graph.collectives.size + 1, 2):
        yield NodeRange(edges[number], edges[number + 1], tuple(streaks[of_part[number] : of_part[number + 1]]))
