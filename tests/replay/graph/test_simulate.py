"""Does a graph simulate as a machine would simulate it, step after step?"""

from __future__ import annotations

import numpy as np
import pytest
from graphs import FEW, HOST, WAIT_END, WORK, Node, by_hand, random_graphs, simulated, simulated_step
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.replay.graph import simulate as simulating
from perfdoctor.replay.graph.graph import NOTHING, Graph
from perfdoctor.replay.graph.simulate import simulate


def host_and_device(host: int, device: int, period: int) -> Graph:
    """One call of `host` ns that launches one kernel of `device` ns."""
    return by_hand(
        [
            Node("call", HOST, 0, host, (("call", 0, True),)),
            Node("kernel", WORK, 10, 10 + device, (("kernel", 0, True), ("call", 5, False)), work=0),
        ],
        period,
    )


def test_the_slower_of_host_and_device_gives_the_pace():
    assert simulate([host_and_device(100, 300, 300)]).step_ns == 300
    assert simulate([host_and_device(400, 300, 400)]).step_ns == 400


def test_a_host_that_is_far_ahead_gives_the_pace_once_its_lead_is_used_up():
    graph = host_and_device(800, 1000, 1000)
    ahead = replace(graph, recorded_end_ns=graph.recorded_end_ns + np.array([0, 50_000]))
    assert simulate([ahead]).step_ns == 1000
    faster = replace(ahead, duration_ns=np.array([800, 500]))
    assert simulated_step([faster], 3, 1) == 500, "for as long as its lead lasts"
    assert simulated_step([faster], 400) == 800
    assert simulate([faster]).step_ns == 800


def test_a_wait_ties_the_host_to_the_device():
    nodes = [
        Node("launch", HOST, 0, 10, (("waited", 20, True),)),
        Node("kernel", WORK, 15, 115, (("kernel", 0, True), ("launch", 5, False)), work=0),
        Node("wait", HOST, 12, 12, (("launch", 2, False),)),
        Node("waited", WAIT_END, 120, 120, (("wait", 8, False), ("kernel", 5, False))),
    ]
    # 20 to the launch, 10 of it, 5 to the kernel, 100 of it, 5 back
    assert simulate([by_hand(nodes, 140)]).step_ns == 140
    assert simulated_step([by_hand(nodes, 140)]) == 140


def test_two_steps_in_a_period_are_two():
    assert simulate([replace(host_and_device(100, 300, 300), units=2)]).step_ns == 150


def test_a_collective_ends_for_all_when_the_last_has_come_and_it_is_sent():
    def rank(compute: int, transfer: int = 40) -> Graph:
        nodes = [
            Node("kernel", WORK, 0, compute, (("reduce", 0, True),), work=0),
            Node("reduce", WORK, compute, 340, (("kernel", 0, False),), work=1),
        ]
        return by_hand(nodes, 340, collectives=np.array([1]), transfer_ns=np.array([transfer]))

    both = [rank(100), rank(300)]
    assert simulate(both).step_ns == simulated_step(both) == 340
    assert simulate([rank(100), rank(100)]).step_ns == 140
    assert simulate([rank(300), rank(100, 10)]).step_ns == 310, "what one rank knows to be shorter is shorter for all"
    ends = [each[1] for each in simulate(both).end_ns]
    assert ends[0] == ends[1]


def test_clocks_that_are_apart_change_nothing():
    nodes = [
        Node("kernel", WORK, 0, 100, (("reduce", 0, True),), work=0),
        Node("reduce", WORK, 100, 140, (("kernel", 0, False),), work=1),
    ]
    meets = {"collectives": np.array([1]), "transfer_ns": np.array([40])}
    here = by_hand(nodes, 140, **meets)
    there = by_hand(nodes, 140, **meets, clock_ns=5_000)
    there = replace(there, recorded_end_ns=there.recorded_end_ns + 5_000)
    assert simulate([here, there]).step_ns == 140
    one, other = (each.tolist() for each in simulate([here, there]).end_ns)
    assert one == other
    assert one[1] - one[0] == 40


def test_times_since_1970_are_simulated_to_the_nanosecond():
    """As numbers with a point they would have 256 ns between one and the next."""
    steps = []
    for begin in (0, 1_700_000_000_000_000_001):
        graph = kernels(1_000, took=2_303)
        moved = {name: getattr(graph, name) + begin for name in ("recorded_start_ns", "recorded_end_ns")}
        steps.append(simulate([replace(graph, **moved)]).step_ns)
    assert steps == [4_000_000, 4_000_000], "the host takes 4 µs a kernel"
    assert simulate([kernels(1_000, took=5_303)]).step_ns == 5_303_000


@FEW
@given(random_graphs())
def test_it_plays_as_a_simulator_does_that_knows_no_order(graph):
    assert simulate([graph]).step_ns == pytest.approx(simulated_step([graph]), rel=1e-3)


@FEW
@given(random_graphs(), st.data())
def test_a_shorter_node_never_makes_the_step_longer(graph, data):
    node = data.draw(st.integers(0, len(graph) - 1))
    share = data.draw(st.sampled_from([0.1, 0.5, 1.0]))
    duration = graph.duration_ns.copy()
    duration[node] -= int(share * duration[node])
    before, after = simulate([graph]).step_ns, simulate([replace(graph, duration_ns=duration)]).step_ns
    assert after <= before * (1 + 1e-9)


@FEW
@given(random_graphs(), st.data())
def test_many_shorter_nodes_play_as_simulated(graph, data):
    factors = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(graph), max_size=len(graph)))
    changed = replace(graph, duration_ns=(graph.duration_ns * np.array(factors)).astype(np.int64))
    assert simulate([changed]).step_ns == pytest.approx(simulated_step([changed], 120), rel=1e-3)


@FEW
@given(random_graphs())
def test_the_step_is_never_below_what_the_busiest_stream_has_to_do(graph):
    step = simulate([graph]).step_ns * graph.units
    works = graph.kind == WORK
    streams = graph.place.work.stream[graph.work_row[works]]
    busy = np.bincount(np.unique(streams, return_inverse=True)[1], weights=graph.duration_ns[works])
    assert step >= busy.max() * (1 - 1e-9)


def longest_round(graph: Graph) -> float:
    """The longest chain from a node of one repetition to itself in the next, by plain recursion over every start."""
    longest = 0.0
    for origin in {int(on) for each, flags in zip(graph.depends, graph.before, strict=True) for on in each[flags]}:
        reached = [float("-inf")] * len(graph)
        for node in range(len(graph)):
            for depends, before, lag in zip(graph.depends, graph.before, graph.lag_ns, strict=True):
                if depends[node] == NOTHING or (before[node] and depends[node] != origin):
                    continue
                start = 0.0 if before[node] else reached[depends[node]]
                moment = start + lag[node] + graph.extra_ns[node] + graph.duration_ns[node]
                reached[node] = max(reached[node], float(moment))
        longest = max(longest, reached[origin])
    return longest


@FEW
@given(random_graphs())
def test_the_step_is_never_below_the_longest_chain_that_repeats(graph):
    assert simulate([graph]).step_ns * graph.units >= longest_round(graph) * (1 - 1e-9)


def kernels(count: int, took: int = 5_000) -> Graph:
    """A host that launches `count` kernels a step, in 4 µs each."""
    nodes = np.arange(2 * count)
    host, previous = nodes % 2 == 0, np.where(nodes >= 2, nodes - 2, 2 * count - 2 + nodes)
    launch = np.where(host, NOTHING, nodes - 1)
    nothing, no = np.full(2 * count, NOTHING), np.zeros(2 * count, dtype=bool)
    zeros = np.zeros(2 * count, np.int64)
    return Graph(
        place=None, kind=np.where(host, HOST, WORK).astype(np.int8),
        recorded_start_ns=5_000 * (nodes // 2), recorded_end_ns=5_000 * (nodes // 2) + np.where(host, 4_000, 9_000),
        duration_ns=np.where(host, 4_000, took), extra_ns=zeros, depends=(previous, launch, nothing),
        before=(nodes < 2, no, no), lag_ns=(zeros, zeros, zeros), work_row=np.where(host, NOTHING, nodes // 2),
        call_row=np.where(host, nodes // 2, NOTHING), gap_start_ns=zeros, gap_end_ns=zeros, loader_wait_ns=zeros,
        period_ns=5_000 * count, units=1,
    )  # fmt: skip


@pytest.mark.parametrize("count", [50_000, 100_000])
def test_each_node_is_simulated_once_a_repetition(monkeypatch, count):
    graph, in_streaks = kernels(count), []
    until = simulating._SimulatedRank.until

    def counting(self, collective):
        in_streaks.extend(streak.end - streak.begin for streak in self.order.until[collective].streaks)
        until(self, collective)

    monkeypatch.setattr(simulating._SimulatedRank, "until", counting)
    assert simulate([graph]).step_ns == 5_000 * count
    assert sum(in_streaks) == simulating.REPETITIONS * len(graph)
    assert len(in_streaks) == simulating.REPETITIONS * 2, "all calls at once, then all kernels"


def test_the_last_ends_are_those_of_the_last_repetition():
    graph = host_and_device(100, 300, 300)
    (ends,) = simulate([graph]).end_ns
    last = simulated([graph], simulating.REPETITIONS)[-1][0]
    assert (ends - ends[0]).tolist() == [end - last[0] for end in last]
