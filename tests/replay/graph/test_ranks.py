"""Are collectives of several ranks put together, late ranks recognised, and clocks aligned?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw
from graphs import WORK, simulated_step
from msgspec.structs import replace

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import UNKNOWN, Frame, Timeline, merge
from perfdoctor.replay.edits import shorter
from perfdoctor.replay.graph.graph import Graph
from perfdoctor.replay.graph.ranks import graphs_of
from perfdoctor.replay.graph.simulate import simulate

UNIT = 100_000
#: A step of twelve: rank 1 computes for eight, the others for four, and wait for it; it takes one to send.
EARLY = {"kernels": " ####       ", "nccl": "     =====  ", "host": "l    lssss  "}
LATE = {"kernels": " ########   ", "nccl": "         =  ", "host": "l    lssss  "}


def moved(drawn: Timeline, by_ns: int) -> Timeline:
    """The same recording by a clock that is ahead."""
    frames = {
        signal: Frame({**frame.columns, "start_ns": frame.start_ns + by_ns, "end_ns": frame.end_ns + by_ns})
        for signal, frame in drawn.frames.items()
    }
    return replace(drawn, frames=frames)


def ranks(*lanes: dict[str, str], apart_ns: int = 0, repeats: tuple[int, ...] = (6, 6, 6)) -> tuple[Graph, ...]:
    drawn = [
        moved(draw(**each, rank=rank, repeat=repeat, world_size=len(lanes)), rank * apart_ns)
        for rank, (each, repeat) in enumerate(zip(lanes, repeats, strict=False))
    ]
    return graphs_of(prepare(merge(drawn)))


def step(graphs: tuple[Graph, ...]) -> float:
    return simulate(graphs).step_ns


def kernels_gone(of: Graph, share: float) -> Graph:
    rows = np.zeros(len(of.place.work), dtype=bool)
    rows[of.place.work.rows["kernels"]] = True
    return shorter.with_shorter_work(of, rows, share)


@pytest.mark.parametrize("apart_ns", [0, 3_000, -2_000_000])
def test_all_leave_together_when_the_late_rank_has_come(apart_ns):
    early, late = graphs = ranks(EARLY, LATE, apart_ns=apart_ns)
    assert early.collectives.size == late.collectives.size == early.units
    assert early.transfer_ns.tolist() == [UNIT] * early.units
    assert (early.clock_ns, late.clock_ns) == (0, apart_ns)
    assert step(graphs) == pytest.approx(12 * UNIT)
    assert simulated_step(list(graphs)) == pytest.approx(12 * UNIT)
    assert step((kernels_gone(early, 1.0), late)) == pytest.approx(12 * UNIT), "it only waits longer"
    # both come after four units now, sent a unit later; two more until the host launches again, and its latency
    assert step((early, kernels_gone(late, 0.5))) == pytest.approx(8 * UNIT, abs=0.5 * UNIT)


def test_a_rank_alone_keeps_its_collective_as_it_was():
    (alone,) = ranks(EARLY)
    assert not alone.collectives.size
    assert step((alone,)) == pytest.approx(12 * UNIT)


def test_what_comes_in_another_order_is_not_joined():
    one = {"kernels": "#                  ", "nccl": "  ===   aaa        ", "host": "l l     l           "[:19]}
    other = {"kernels": "#                  ", "nccl": "  aaa   ===        ", "host": "l l     l           "[:19]}
    graphs = ranks(one, other)
    assert [graph.collectives.size for graph in graphs] == [0, 0]
    assert step(graphs) == pytest.approx(19 * UNIT)
    in_order = ranks(one, one)
    assert in_order[0].collectives.size == 2 * in_order[0].units


def test_ranks_play_equally_many_steps_together():
    graphs = ranks(EARLY, LATE, repeats=(8, 6))
    assert len({graph.units for graph in graphs}) == 1
    assert step(graphs) == pytest.approx(12 * UNIT, rel=0.01)


def test_a_place_without_a_graph_leaves_none():
    drawn = [draw(**EARLY, rank=0, repeat=6), draw(kernels="####", rank=1, mark=None)]
    assert graphs_of(prepare(merge(drawn))) == ()


def test_collectives_are_the_collectives():
    for graph in ranks(EARLY, LATE, EARLY):
        own = set(graph.place.work.rows["collectives"].tolist())
        assert (graph.kind[graph.collectives] == WORK).all()
        assert set(graph.work_row[graph.collectives].tolist()) <= own
        assert (graph.work_row[graph.collectives] != UNKNOWN).all()
        assert (np.diff(graph.collectives) > 0).all()
