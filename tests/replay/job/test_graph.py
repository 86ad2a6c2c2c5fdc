"""Does a job graph end when the longest way through it does, and are its parts those of the ones who make it long?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.model.timeline import UNKNOWN, Ints
from perfdoctor.replay.job.graph import JobGraph
from perfdoctor.replay.job.parts import balanced_ns, even_stages_ns, of_peers_ns, parts

Edges = list[tuple[int, int]]


def graph_of(
    duration: list[float],
    edges: Edges,
    rank: list[int],
    *,
    stage: list[int] | None = None,
    peers: list[int] | None = None,
) -> JobGraph:
    """Nodes of ranks, of rank UNKNOWN moments of meetings, and one behind all of them. Edges: (after, before)."""
    ranks = np.array([*rank, UNKNOWN], np.int64)
    after, before = np.array(edges, np.int64).reshape(-1, 2).T
    size = len(duration)
    return JobGraph(
        duration_ns=np.array([*duration, 0.0], np.float64),
        kind=np.where(ranks == UNKNOWN, UNKNOWN, 0),
        is_transfer=np.zeros(size + 1, dtype=bool),
        rank=ranks,
        stage=np.array([*(stage or [0] * size), UNKNOWN], np.int64),
        peers=np.array([*(peers or [UNKNOWN] * size), UNKNOWN], np.int64),
        after=np.append(after, np.full(size, size)),
        before=np.append(before, np.arange(size)),
        first=np.array([UNKNOWN]),
        last=np.array([size]),
        steps=1,
    )


def longest_way(duration: list[float], edges: Edges) -> list[float]:
    ends: dict[int, float] = {}

    def end(node: int) -> float:
        if node not in ends:
            ends[node] = duration[node] + max((end(before) for after, before in edges if after == node), default=0.0)
        return ends[node]

    return [end(node) for node in range(len(duration))]


@st.composite
def acyclic(draw: st.DrawFn) -> tuple[list[float], Edges]:
    size = draw(st.integers(1, 12))
    duration = draw(st.lists(st.integers(0, 9).map(float), min_size=size, max_size=size))
    names = draw(st.permutations(range(size)))
    pairs = [(after, before) for after in range(size) for before in range(after)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return duration, [(names[after], names[before]) for after, before in chosen]


@given(acyclic())
def test_a_node_ends_when_the_longest_way_to_it_does(drawn: tuple[list[float], Edges]) -> None:
    duration, edges = drawn
    graph = graph_of(duration, edges, [0] * len(duration))
    twice = np.stack([graph.duration_ns, 2 * graph.duration_ns], axis=1)
    expected = longest_way(duration, edges)
    assert graph.ends_ns(twice).tolist() == [[end, 2 * end] for end in [*expected, max(expected)]]
    assert graph.step_ns(twice).tolist() == [max(expected), 2 * max(expected)]


def test_work_that_waits_for_itself_is_an_error() -> None:
    graph = graph_of([1.0, 1.0], [(0, 1), (1, 0)], [0, 0])
    with pytest.raises(ValueError, match="waits for itself"):
        graph.step_ns(graph.duration_ns[:, None])


#: Three ranks meet twice: their own work, the meeting, their own work, the meeting.
_MEET: Edges = [(3, 0), (3, 1), (3, 2), (4, 3), (5, 3), (6, 3), (7, 4), (7, 5), (7, 6)]
_RANKS = [0, 1, 2, UNKNOWN, 0, 1, 2, UNKNOWN]
_PEERS = [0, 0, 0, UNKNOWN, 1, 1, 1, UNKNOWN]


def shares(graph: JobGraph, ideal_ns: np.ndarray, owner: Ints) -> list[float]:
    return parts(graph, ideal_ns, owner).shares.round(3).tolist()


def test_the_rank_that_takes_longer_than_its_peers_has_all_of_the_excess() -> None:
    graph = graph_of([10, 15, 10, 1, 10, 15, 10, 1], _MEET, _RANKS, peers=_PEERS)
    found = parts(graph, of_peers_ns(graph), graph.rank)
    assert (found.step_ns, found.ideal_ns) == (32, 22)
    assert found.shares.tolist() == [0, 1, 0]
    assert found.excess_ns.tolist() == [0, 10, 0]


def test_of_two_ranks_that_are_equally_late_none_saves_anything_alone() -> None:
    ranks, peers = [0, 1, 2, 3, 4, UNKNOWN], [0, 0, 0, 0, 0, UNKNOWN]
    graph = graph_of([10, 15, 15, 10, 10, 0], [(5, node) for node in range(5)], ranks, peers=peers)
    found = parts(graph, of_peers_ns(graph), graph.rank)
    assert found.shares.tolist() == [0, 0, 0, 0, 0]
    assert found.excess_ns.tolist() == [0, 5, 5, 0, 0]


def test_of_two_peers_the_slower_one_is_late_by_what_it_takes_longer() -> None:
    graph = graph_of([10, 16, 0], [(2, 0), (2, 1)], [0, 1, UNKNOWN], peers=[0, 0, UNKNOWN])
    assert of_peers_ns(graph)[:-1].tolist() == [10, 10, 0]


def test_work_that_is_cut_into_more_pieces_on_one_rank_is_held_against_all_of_its_peers_work() -> None:
    graph = graph_of(
        [10, 10, 6, 9, 0], [(3, 2), (4, 0), (4, 1), (4, 3)], [0, 1, 2, 2, UNKNOWN], peers=[0, 0, 0, 0, UNKNOWN]
    )
    assert of_peers_ns(graph)[:-1].tolist() == [10, 10, 4, 6, 0]


def test_a_heavy_stage_is_evened_and_its_late_rank_stays_late() -> None:
    graph = graph_of([10, 10, 20, 24], [(2, 0), (3, 1)], [0, 1, 2, 3], stage=[0, 0, 1, 1])
    assert even_stages_ns(graph)[:-1].round(6).tolist() == [16, 16, round(20 * 16 / 22, 6), round(24 * 16 / 22, 6)]


def test_balanced_work_takes_the_mean_of_its_kind_and_moments_take_nothing() -> None:
    graph = graph_of([10, 20, 30, 0], [(3, 0), (3, 1), (3, 2)], [0, 1, 2, UNKNOWN])
    assert balanced_ns(graph)[:-1].tolist() == [20, 20, 20, 0]
    assert shares(graph, balanced_ns(graph), graph.rank) == [0, 0, 1]
