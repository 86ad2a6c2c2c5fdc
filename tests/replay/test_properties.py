"""What holds for every replay: on random graphs of several threads, streams, waits, loaders and ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from builders import draw
from graphs import HOST, NOTHING, WAIT_END, WORK, random_graphs
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import merge
from perfdoctor.replay.edits import shorter as edits
from perfdoctor.replay.edits.fused import merged
from perfdoctor.replay.graph import simulate as simulating
from perfdoctor.replay.graph.graph import Graph
from perfdoctor.replay.graph.ranks import graphs_of
from perfdoctor.replay.graph.simulate import simulate

Graphs = tuple[Graph, ...]
#: As often as elsewhere; but a smaller picture that fails as well shows no more, and looking for it takes long.
UNSHRUNK = settings(phases=[Phase.explicit, Phase.generate])
WIDTH, STEPS = 24, 5


def stretch(characters: str, least: int = 0, most: int = 6) -> st.SearchStrategy[str]:
    return st.tuples(st.sampled_from(characters), st.integers(least, most)).map(lambda pair: pair[0] * pair[1])


def lane(characters: str, pieces: int) -> st.SearchStrategy[str]:
    return st.lists(stretch(characters), max_size=pieces).map(lambda found: "".join(found)[:WIDTH].ljust(WIDTH))


@st.composite
def beside_a_loader(draw_from: st.DrawFn) -> Graphs:
    """A training that waits for its loader, which has its own pace or not."""
    waiting = draw_from(st.integers(1, WIDTH // 2))
    host = "i" * waiting + "l" + draw_from(lane("sq ", 4))
    drawn = draw(
        kernels="## +" + draw_from(lane("#+ ", 5))[4:],
        host=["l" + " " * (WIDTH - 1), host[:WIDTH].ljust(WIDTH)],
        host_ahead=draw_from(st.integers(0, WIDTH)),
        repeat=STEPS,
    )
    found = graphs_of(prepare(drawn), paced=draw_from(st.booleans()))
    assume(found)
    return found


@st.composite
def of_ranks(draw_from: st.DrawFn) -> Graphs:
    """Ranks that compute for different times before each of their common collectives; clocks are apart."""
    ranks, collectives = draw_from(st.integers(2, 3)), draw_from(st.integers(1, 2))
    drawn = []
    for rank in range(ranks):
        kernels = nccl = ""
        for _ in range(collectives):
            computing, talking, pause = (draw_from(st.integers(1, most)) for most in (5, 4, 2))
            kernels += "#" * computing + " " * (talking + pause)
            nccl += " " * computing + "=" * talking + " " * pause
        host = "l" * (2 * collectives) + draw_from(lane("s ", 3))
        lanes = {"kernels": kernels.ljust(WIDTH), "nccl": nccl.ljust(WIDTH), "host": host[:WIDTH].ljust(WIDTH)}
        drawn.append(draw(**lanes, rank=rank, repeat=STEPS, world_size=ranks, launched_us_before=50))
    found = graphs_of(prepare(merge(drawn)))
    assume(found)
    assume(found[0].collectives.size)
    return tuple(
        replace(graph, clock_ns=graph.clock_ns + apart, recorded_end_ns=graph.recorded_end_ns + apart)
        for graph, apart in zip(
            found, draw_from(st.lists(st.integers(-9, 9), min_size=ranks, max_size=ranks)), strict=True
        )
    )


def any_graphs() -> st.SearchStrategy[Graphs]:
    """Streams, threads and waits in the first; loaders; ranks."""
    return st.one_of(random_graphs(STEPS).map(lambda graph: (graph,)), beside_a_loader(), of_ranks())


def step(graphs: Sequence[Graph]) -> float:
    return simulate(graphs).step_ns


def every_edit(graph: Graph, share: float) -> dict[str, Graph]:
    """All of each kind, and all kinds that there are."""
    calls = np.ones(len(graph.place.timeline.calls), dtype=bool)
    rows = np.ones(len(graph.place.work), dtype=bool)
    everywhere = Intervals.single(0, 1 << 60)
    return {
        "host time": edits.without_host_time(graph, everywhere, share),
        "loader": edits.without_loader_waits(graph, share),
        "host": edits.with_faster_host(graph, share, Intervals.empty()),
        "waits": edits.without_waits(graph, calls) if share else graph,
        "work": edits.with_shorter_work(graph, rows, share),
        "fused": merged(graph, rows, share, Intervals.empty()),
    }


def of_kind(name: str, graphs: Graphs, share: float) -> Graphs:
    return tuple(every_edit(graph, share)[name] for graph in graphs)


KINDS = ("host time", "loader", "host", "waits", "work", "fused")
SHARES = (0.1, 0.5, 1.0)


@given(any_graphs(), st.data())
def test_shorter_nodes_never_make_the_step_longer(graphs, data):
    shorter = []
    for graph in graphs:
        factor = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(graph), max_size=len(graph)))
        parts = data.draw(st.sampled_from(SHARES))
        shorter.append(
            replace(
                graph,
                duration_ns=(graph.duration_ns * np.array(factor)).astype(np.int64),
                transfer_ns=(graph.transfer_ns * parts).astype(np.int64),
            )
        )
    assert step(shorter) <= step(graphs)


@given(any_graphs())
def test_removing_nothing_changes_nothing(graphs):
    before = simulate(graphs)
    for name in KINDS:
        after = simulate(of_kind(name, graphs, 0.0))
        assert after.step_ns == before.step_ns, name
        assert [ends.tolist() for ends in after.end_ns] == [ends.tolist() for ends in before.end_ns], name


@given(any_graphs())
def test_no_edit_makes_the_step_longer_and_more_of_it_no_longer(graphs):
    before = step(graphs)
    for name in KINDS:
        steps = [before, *(step(of_kind(name, graphs, share)) for share in SHARES)]
        assert steps == sorted(steps, reverse=True), name


@given(any_graphs(), st.sampled_from(KINDS), st.sampled_from(KINDS), st.sampled_from(SHARES), st.sampled_from(SHARES))
def test_edits_may_follow_each_other_in_any_order(graphs, one, other, first, second):
    """To the nanosecond that each may round, on each node."""
    there = of_kind(other, of_kind(one, graphs, first), second)
    back = of_kind(one, of_kind(other, graphs, second), first)
    assert step(there) == pytest.approx(step(back), abs=4 * max(map(len, graphs)))


@given(any_graphs(), st.sampled_from(KINDS), st.sampled_from(SHARES))
def test_after_another_edit_none_makes_the_step_longer(graphs, one, share):
    first = of_kind(one, graphs, share)
    for name in KINDS:
        assert step(of_kind(name, first, 0.5)) <= step(first), name


def longest_round(graph: Graph, kinds: Sequence[int]) -> float:
    """The longest chain of such nodes from one of a repetition to itself in the next, by plain steps from each start.

    A collective of several ranks takes no less than what is sent.
    """
    takes = (graph.extra_ns + graph.duration_ns).tolist()
    for node, sent in zip(graph.collectives.tolist(), graph.transfer_ns.tolist(), strict=True):
        takes[node] = int(graph.extra_ns[node]) + sent
    ties = [
        [(int(on[node]), int(lag[node]), bool(flags[node])) for on, lag, flags in zip(*columns, strict=True)]
        for columns in [(graph.depends, graph.lag_ns, graph.before)]
        for node in range(len(graph))
    ]
    chosen = [int(kind) in kinds for kind in graph.kind]
    longest = 0.0
    for origin in {on for node in range(len(graph)) for on, _, flag in ties[node] if flag and on != NOTHING}:
        reached = [float("-inf")] * len(graph)
        for node in range(len(graph)):
            if chosen[node]:
                starts = [
                    ((0.0 if on == origin else float("-inf")) if flag else reached[on]) + lag
                    for on, lag, flag in ties[node]
                    if on != NOTHING
                ]
                reached[node] = max(starts, default=float("-inf")) + takes[node]
        longest = max(longest, reached[origin])
    return longest


@UNSHRUNK
@given(any_graphs(), st.sampled_from(KINDS), st.sampled_from([0.0, 0.5]))
def test_the_step_is_never_below_its_longest_chain(graphs, name, share):
    graphs = of_kind(name, graphs, share)
    least = [int(min(each.transfer_ns[n] for each in graphs)) for n in range(graphs[0].collectives.size)]
    graphs = tuple(replace(graph, transfer_ns=np.array(least, np.int64)) for graph in graphs)
    takes = step(graphs)
    for kinds in ((HOST, WAIT_END), (WORK,), (HOST, WAIT_END, WORK)):
        for graph in graphs:
            # what falls behind by less than that is taken to be steady, and not simulated on
            assert takes * graph.units >= longest_round(graph, kinds) * (1 - simulating._STEADY), kinds
