"""Can nodes that are simulated at once be simulated at once, and is the outcome that of simulating one by one?"""

from __future__ import annotations

import numpy as np
from graphs import FEW, HOST, NOTHING, WORK, Node, by_hand, random_graphs, simulated
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.replay.graph.graph import Graph
from perfdoctor.replay.graph.order import SimulationOrder, order_of
from perfdoctor.replay.graph.simulate import REPETITIONS, simulate


def stretches(order: SimulationOrder) -> list[list[int]]:
    """The nodes of each streak, in the order of simulation; collectives are left out."""
    return [order.nodes[streak.begin : streak.end].tolist() for part in order.until for streak in part.streaks]


def in_turns(steps: int) -> Graph:
    """A host that launches a kernel, waits for it, and launches the next."""
    nodes = []
    for number in range(steps):
        behind = (f"call{number - 1}", 0, False) if number else (f"call{steps - 1}", 0, True)
        previous = (f"kernel{number - 1}", 0, False) if number else (f"kernel{steps - 1}", 0, True)
        nodes.append(Node(f"call{number}", HOST, 10 * number, 10 * number + 4, (behind, previous)))
        on = (previous, (f"call{number}", 1, False))
        nodes.append(Node(f"kernel{number}", WORK, 10 * number + 5, 10 * number + 10, on, work=number))
    return by_hand(nodes, 10 * steps)


def test_what_takes_turns_is_simulated_in_turns():
    graph = in_turns(4)
    assert stretches(order_of(graph, 1)) == [[node] for node in range(8)]
    assert simulate([graph]).step_ns == 40


def test_all_calls_are_one_streak_and_all_kernels_another():
    nodes = []
    for number in range(5):
        call, kernel = (f"{kind}{(number or 5) - 1}" for kind in ("call", "kernel"))
        nodes.append(Node(f"call{number}", HOST, 10 * number, 10 * number + 4, ((call, 0, not number),)))
        on = ((kernel, 0, not number), (f"call{number}", 1, False))
        nodes.append(Node(f"kernel{number}", WORK, 10 * number + 5, 10 * number + 10, on, work=number))
    assert stretches(order_of(by_hand(nodes, 50), 1)) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_a_collective_is_in_no_streak_and_parts_those_before_and_behind():
    graph = replace(in_turns(3), collectives=np.array([3]), transfer_ns=np.array([5]))
    order = order_of(graph, 1)
    assert stretches(order) == [[0], [1], [2], [4], [5]]
    assert [(part.begin, part.end) for part in order.until] == [(0, 3), (4, 6)]


@given(random_graphs())
def test_nothing_is_simulated_before_what_it_waits_for(graph):
    order = order_of(graph, 1)
    assert sorted(order.nodes.tolist()) == list(range(len(graph)))
    assert (order.nodes[order.at] == np.arange(len(graph))).all()
    known: set[int] = set()
    for nodes in stretches(order):
        for before, node in zip([NOTHING, *nodes], nodes, strict=False):
            within = {int(on[node]) for on, flags in zip(graph.depends, graph.before, strict=True) if not flags[node]}
            others = within - {NOTHING} - ({int(graph.depends[0][node])} if before != NOTHING else set())
            assert others <= known
            assert before in (NOTHING, graph.depends[0][node]), "along a streak each is behind the one before"
        known.update(nodes)
    assert len(known) == len(graph)


@FEW
@given(random_graphs())
def test_at_once_or_one_by_one_is_the_same(graph):
    found = []
    for shortest in (1, 2, 1 << 30):
        (ends,) = simulate([graph], [order_of(graph, shortest)]).end_ns
        found.append((ends - ends[0]).tolist())
    assert found[0] == found[1] == found[2]
    before, last = (np.array(each[0]) for each in simulated([graph], REPETITIONS)[-2:])
    works = graph.kind == WORK
    if (last - before).max() <= last[works].max() - before[works].max():  # else it is not simulated to its end by then
        assert found[0] == (last - last[0]).tolist()


@FEW
@given(random_graphs(), st.data())
def test_an_order_holds_for_a_graph_that_waits_for_less(graph, data):
    order = order_of(graph)
    gone = np.array(data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph))))
    depends = (graph.depends[0], *(np.where(gone, NOTHING, on) for on in graph.depends[1:]))
    fewer = replace(graph, depends=depends)
    assert order.fits(graph)
    assert order.fits(fewer)
    assert simulate([fewer], [order]).step_ns == simulate([fewer]).step_ns


def test_order_of_another_graph_are_not_used():
    graph = in_turns(4)
    order = order_of(graph)
    more = replace(graph, depends=(graph.depends[0], graph.depends[1], np.maximum(np.arange(8) - 2, NOTHING)))
    assert not order.fits(more)
    first = graph.depends[0].copy()
    first[3] = 0
    other = replace(graph, depends=(first, *graph.depends[1:]))
    assert not order.fits(other)
    assert simulate([more], [order]).step_ns == simulate([more]).step_ns
    assert simulate([other], [order]).step_ns == simulate([other]).step_ns
