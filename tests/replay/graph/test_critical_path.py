"""What does the length of a step hang on?"""

from __future__ import annotations

import pytest
from builders import draw

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Timeline, merge
from perfdoctor.records.predictions import CriticalPath
from perfdoctor.replay.graph.critical_path import critical_path
from perfdoctor.replay.graph.ranks import graphs_of
from perfdoctor.replay.graph.simulate import simulate


def path_of(timeline: Timeline, *, paced: bool = True) -> CriticalPath:
    graphs = graphs_of(prepare(timeline), paced=paced)
    return critical_path(graphs, simulate(graphs))


def steps(host: list[str], kernels: str = "#" * 30 + " " * 10, **more) -> Timeline:
    return draw(**{"kernels": kernels, "host": host, "repeat": 8, "unit_us": 1000, **more})


def test_where_host_and_device_take_turns_both_are_on_it():
    found = path_of(steps(["l" + "s" * 29 + " " * 10, "o" * 40]))
    # 30 of 40 units a kernel; 10 in which the host learns of it and launches the next
    assert found.share["compute"] == pytest.approx(0.75, abs=0.01)
    assert found.share["host"] == pytest.approx(0.25, abs=0.01)
    assert found.step_ns == pytest.approx(40e6, rel=0.01)


def test_pieces_are_as_long_as_the_step_and_sorted():
    found = path_of(steps(["l" + "s" * 29 + " " * 10, "o" * 40]))
    lengths = [piece.ns_per_step for piece in found.pieces]
    assert lengths == sorted(lengths, reverse=True)
    assert sum(lengths) == pytest.approx(found.step_ns, rel=0.01)
    assert (found.pieces[0].kind, found.pieces[0].name) == ("compute", "some_kernel")
    assert found.pieces[0].times_per_step == pytest.approx(1)


def test_a_busy_device_behind_a_host_that_is_ahead_is_all_of_it():
    found = path_of(steps(["l" + " " * 39, "o" * 40], kernels="#" * 40, host_ahead=60))
    assert found.share["compute"] == pytest.approx(1, abs=0.01)


def test_a_host_that_never_waits_is_all_of_it():
    found = path_of(steps(["l" + " " * 39, "o" * 40], kernels="#" * 4 + " " * 36))
    assert found.share["host"] > 0.95
    assert next(piece.name for piece in found.pieces if piece.kind == "host") == "aten::add"


def test_a_loader_of_its_own_pace_is_all_of_it():
    found = path_of(steps(["l" + " " * 39, " " * 20 + "i" * 20, "o"], kernels="#" * 10 + " " * 30))
    assert found.share["loader"] > 0.94


def test_a_loader_in_the_training_is_host_time_of_its_kind():
    found = path_of(steps(["l" + " " * 39, " " * 20 + "I" * 20, "o" * 20], kernels="#" * 10 + " " * 30), paced=False)
    assert found.share["input_wait"] == pytest.approx(0.5, abs=0.02)


def test_it_goes_through_the_rank_for_which_the_others_wait():
    def rank(number: int, arrives: int) -> Timeline:
        kernels, nccl = "#" * arrives + " " * (40 - arrives), " " * arrives + "=" * (40 - arrives)
        return draw(kernels=kernels, nccl=nccl, rank=number, repeat=8, launched_us_before=50, unit_us=1000)

    found = path_of(merge([rank(0, 10), rank(1, 36)]))
    # rank 1 computes for 36 units, then 4 units are sent; rank 0's waiting is not on it
    assert found.share["compute"] == pytest.approx(0.9, abs=0.02)
    assert found.share["communication"] == pytest.approx(0.1, abs=0.02)


def test_what_reaches_over_the_period_counts_as_far_as_it_lies_in_it():
    found = path_of(steps(["l" + " " * 39, " " * 4 + "i" * 36, "o"], kernels="#" * 10 + " " * 30))
    assert sum(piece.ns_per_step for piece in found.pieces) == pytest.approx(found.step_ns, rel=0.01)
    assert sum(found.share.values()) == pytest.approx(1)
