"""Do collectives and the last rank's lateness change as their formulas have it, and nothing else?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw
from collective_builders import MIB, described
from graphs import WORK
from msgspec.structs import replace

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run, Selection
from perfdoctor.model.timeline import UNKNOWN, Timeline, merge
from perfdoctor.replay.edits.other_ranks import alone, askable, measured, own_steps_ns, recorded_ranks, with_ranks
from perfdoctor.replay.graph.ranks import graphs_of
from perfdoctor.replay.graph.simulate import simulate
from perfdoctor.replay.what_if.scaling import expected_last_ns

UNIT = 100_000
#: A step of twelve: rank 1 computes for eight, the others for four, and wait for it; it takes two to send.
EARLY = {"kernels": " ####       ", "nccl": "     ====== ", "host": "lclsssssssss".replace("c", " ")[:12]}
LATE = {"kernels": " ########   ", "nccl": "         == ", "host": "l lsssssssss"}


def rank(number: int, of: int = 2, size: int = 100 * MIB, **lanes) -> Timeline:
    own = {"repeat": 6, "rank": number, "device": number, "world_size": of, **(LATE if number == 1 else EARLY)}
    return described(draw(**{**own, **lanes}), bytes=size, group_size=of)


def several(of: int = 2, **how) -> Run:
    return prepare(merge([rank(number, of, **how) for number in range(of)]))


def only_one(of: int, **how) -> Run:
    return prepare(rank(0, of, **how))


def step_units(run: Run, ranks: int, case: int = 1) -> float:
    graphs, later = with_ranks(graphs_of(run), run, ranks, case)
    return (simulate(graphs).step_ns + later) / UNIT


# Collectives


@pytest.mark.parametrize("case", [0, 1, 2])
def test_as_many_ranks_as_recorded_change_nothing(case):
    run = several()
    graphs = graphs_of(run)
    same, later = with_ranks(graphs, run, 2, case)
    assert later == 0
    assert simulate(same).step_ns == simulate(graphs).step_ns
    assert [each.duration_ns.tolist() for each in same] == [each.duration_ns.tolist() for each in graphs]


def test_one_rank_has_no_communication_and_waits_for_nobody():
    """Rank 0 computes for four and has one of the host's; rank 1 for eight: the mean of both by themselves."""
    run = several()
    assert step_units(run, 2) == pytest.approx(12, rel=0.02)
    own = [simulate([alone(graph)]).step_ns / UNIT for graph in graphs_of(run)]
    assert step_units(run, 1) == pytest.approx(sum(own) / 2)
    assert own[0] + 3.9 <= own[1] <= 10.2
    for graph in graphs_of(run):
        talks = graph.place.work.rows["collectives"]
        silent = alone(graph)
        of_talk = (graph.kind == WORK) & np.isin(graph.work_row, talks)
        assert (silent.duration_ns[of_talk] == 0).all()
        assert not silent.collectives.size


def test_a_transfer_grows_with_the_ranks_and_what_one_waited_for_others_stays():
    """Of 17 ranks one was recorded. All of one size: bandwidth alone, 2(n − 1)/n; the longest wait is no transfer."""
    run = only_one(17)
    (transfer,) = measured(run)
    assert transfer.transfer_ns == 6 * UNIT
    before, after = step_units(run, 17), step_units(run, 34)
    assert after - before == pytest.approx(6 * ((33 / 34) / (16 / 17) - 1), abs=0.02)


def test_the_shortest_of_a_size_is_the_transfer_of_a_rank_recorded_alone():
    waited = {
        "kernels": " ####                  ",
        "nccl": "     ======     ==     ",
        "host": "l lsssssssss           ",
    }
    run = only_one(17, **waited)
    (transfer,) = measured(run)
    assert transfer.transfer_ns == 2 * UNIT
    grown = 2 * ((33 / 34) / (16 / 17) - 1)
    graphs, _ = with_ranks(graphs_of(run), run, 34)
    for before, after in zip(graphs_of(run), graphs, strict=True):
        talks = (before.kind == WORK) & np.isin(before.work_row, before.place.work.rows["collectives"])
        assert (after.duration_ns - before.duration_ns)[talks] == pytest.approx(grown * UNIT, abs=1)


def test_sizes_are_asked_of_the_steps_that_are_analysed():
    timeline = rank(0, 17)
    rows = timeline.collectives
    outside = np.arange(len(rows)) < 2
    without = timeline.with_frame("collectives", rows.with_columns(bytes=np.where(outside, UNKNOWN, rows["bytes"])))
    assert askable(prepare(without, Selection(steps=(3, 4)))).holds(34)
    assert "sizes of its collectives" in askable(prepare(without, Selection(steps=(1, 4)))).why_not


def test_recorded_together_the_transfer_begins_when_the_last_has_come():
    run = several(17)
    (transfer,) = measured(run)
    assert transfer.transfer_ns == 2 * UNIT
    graphs, _ = with_ranks(graphs_of(run), run, 34)
    assert graphs[0].transfer_ns == pytest.approx(2 * UNIT * (33 / 34) / (16 / 17), abs=1)


# Who comes last


def test_the_last_of_more_ranks_comes_later_by_what_their_own_steps_differ():
    run = several(17)
    graphs = graphs_of(run)
    steps = own_steps_ns(graphs)
    assert steps.max() - steps.min() == pytest.approx(4 * UNIT, rel=0.05)  # one of 17 computes for four units more
    _, later = with_ranks(graphs, run, 34)
    assert later == pytest.approx(expected_last_ns(steps, 34) - expected_last_ns(steps, 17))
    assert with_ranks(graphs, run, 34, 2)[1] == 0
    assert with_ranks(graphs, run, 34, 0)[1] >= later > 0


def test_more_ranks_are_never_faster():
    run = several(17)
    steps = [[step_units(run, ranks, case) for ranks in (17, 18, 64, 1024)] for case in range(3)]
    assert all(way == sorted(way) for way in steps)
    assert all(worst >= likely >= best for worst, likely, best in zip(*steps, strict=True))


# What can be asked


def test_without_communication_or_its_sizes_only_what_needs_none_can_be_asked():
    nothing = askable(prepare(draw(kernels="GG ", repeat=4)))
    assert (nothing.what, nothing.holds(2), nothing.holds(1)) == ("", False, True)  # it is one rank
    unsized = askable(several(size=-1))
    assert unsized.what == "ranks=1 (no communication)"
    assert [ranks for ranks in range(1, 9) if unsized.holds(ranks)] == [1, 2]
    assert "sizes" in unsized.why_not


def test_of_one_machine_no_more_ranks_than_it_had_and_of_several_no_fewer():
    within = askable(several())
    assert [ranks for ranks in range(1, 40) if within.holds(ranks)] == [1, 2]
    across = askable(only_one(32))
    assert [ranks for ranks in (1, 2, 16, 17, 31, 32, 33, 4096) if across.holds(ranks)] == [1, 17, 31, 32, 33, 4096]
    assert "one machine" in across.why_not


def test_over_a_network_that_is_given_there_may_be_more_and_what_it_gives_bounds_the_transfer():
    """100 MiB took 0.2 ms among two: 524 GB/s. Over 50 GB/s 64 ranks send 2 · 63/64 times as much each."""
    run = several()
    assert not askable(run).holds(64)
    assert askable(run).holds(64, network_known=True)
    assert not askable(several(size=-1)).holds(64, network_known=True)
    graphs, _ = with_ranks(graphs_of(run), run, 64, 1, 50e9)
    assert graphs[0].transfer_ns == pytest.approx(2 * 63 / 64 * 100 * MIB / 50e9 * 1e9, rel=1e-4)
    unbound, _ = with_ranks(graphs_of(run), run, 64)
    faster, _ = with_ranks(graphs_of(run), run, 64, 1, 900e9)
    assert (faster[0].transfer_ns == unbound[0].transfer_ns).all()


def test_groups_and_kinds_of_which_the_ranks_do_not_tell_the_growth():
    parts = prepare(described(rank(0, 32), group_size=8))
    assert "several groups" in askable(parts).why_not
    sends = prepare(rank(0, 32, nccl="     ssssss "))
    assert "sends" in askable(sends).why_not
    assert askable(parts).holds(1)
    assert askable(sends).holds(32)


def test_how_many_ranks_there_were_may_not_be_known():
    run = prepare(replace(rank(0, 2), world_size=0))
    assert recorded_ranks(run) == 0
    assert askable(run).holds(1)
    assert not askable(run).holds(2)
    assert recorded_ranks(prepare(draw(kernels="GG ", repeat=4))) == 1
