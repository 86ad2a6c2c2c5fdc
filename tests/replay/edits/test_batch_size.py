"""Does a larger batch lengthen what each sample costs, and nothing else?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders import FOREACH_ADAM, draw, only_place
from graphs import FEW, graph, random_graphs
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tables import of_each

from perfdoctor.model.timeline import Device, Timeline
from perfdoctor.replay.edits.batch_size import with_batch, work_factors
from perfdoctor.replay.edits.batch_work import loader_nodes
from perfdoctor.replay.graph.graph import HOST, WORK
from perfdoctor.replay.graph.simulate import simulate

UNIT = 100_000


def with_grids(drawn: Timeline, blocks, threads=256, *, sms=100, capability=(8, 0)) -> Timeline:
    """The same picture with these grids, one of the kernels of a step after the other, on a GPU with so many SMs."""
    kernels = drawn.kernels
    many = np.resize(np.array(blocks, np.int64), len(kernels))
    kernels = kernels.with_columns(blocks=many, threads_per_block=np.full(len(kernels), threads, np.int64))
    device = Device(0, 0, "a GPU", sms, capability)
    return replace(drawn, frames={**drawn.frames, "kernels": kernels}, devices=(device,))


def step_units(drawn: Timeline, factor: float, case: int = 1, **settings) -> float:
    found = graph(drawn, **settings)
    return simulate([with_batch(found, factor, case)]).step_ns / UNIT


def of_kernels(drawn: Timeline, factor: float, case: int = 1) -> list[float]:
    place = only_place(drawn)
    return work_factors(place, factor, case)[place.work.rows["kernels"]].tolist()


def plain(blocks: int, at_once: int, factor: float) -> float:
    """Waves then over waves before, and never beyond the factor itself."""
    waves = math.ceil(math.ceil(factor * blocks) / at_once) / math.ceil(blocks / at_once)
    return min(waves, factor) if factor > 1 else max(waves, factor)


# Kernels


@of_each("factor", [0.5, 0.75, 1.1, 2, 3, 64])
@of_each("blocks", [1, 60, 100, 101, 799, 800, 801, 100_000])
def test_a_kernel_takes_as_long_as_its_waves(blocks, factor):
    elementwise = with_grids(draw(kernels="e ", repeat=4), blocks)
    assert set(of_kernels(elementwise, factor)) == {plain(blocks, 100 * (2048 // 256), factor)}
    matmul = with_grids(draw(kernels="G ", repeat=4), blocks)
    assert set(of_kernels(matmul, factor)) == {plain(blocks, 100, factor)}
    best = 2 if factor > 1 else 0  # a larger batch wins most, and a smaller one least, where SMs have room for more
    assert set(of_kernels(matmul, factor, best)) == {plain(blocks, 800, factor)}
    assert set(of_kernels(matmul, factor, 2 - best)) == {factor}


def test_older_and_smaller_gpus_take_fewer_threads():
    turing = with_grids(draw(kernels="e ", repeat=4), 500, sms=100, capability=(7, 5))
    assert set(of_kernels(turing, 2)) == {plain(500, 100 * (1024 // 256), 2)} == {3 / 2}
    many_small = with_grids(draw(kernels="e ", repeat=4), 5_000, threads=32, capability=(8, 0))
    assert set(of_kernels(many_small, 2)) == {plain(5_000, 100 * 32, 2)}  # 64 by threads, but 32 blocks at most


@pytest.mark.parametrize("what", ["no grid", "no GPU", "a graph", "weights"])
def test_where_no_grid_tells_it_a_kernel_grows_with_the_batch(what):
    drawn = draw(kernels="@ " if what == "a graph" else "e ", repeat=4)
    if what == "weights":
        drawn = draw(kernels="G ", repeat=4, kernel_names={"G": "xmma::gemm::wgrad_indexed_kernel"})
    drawn = with_grids(drawn, -1 if what == "no grid" else 1, sms=0 if what == "no GPU" else 100)
    assert {tuple(set(of_kernels(drawn, 3, case))) for case in range(3)} == {(3.0,)}


def test_what_is_for_parameters_stays():
    drawn = with_grids(draw(kernels="eMe", host=["l" + "ll", " u ", "o"], repeat=4), 100_000)
    # The picture's optimizer launches the middle one; it is of that family besides.
    assert of_kernels(drawn, 2)[:3] == [2, 1, 2]
    by_range = draw(kernels="e+e", host=["lll", " u ", "o"], repeat=4)
    assert of_kernels(with_grids(by_range, 100_000), 2)[:3] == [2, 1, 2]
    clipped = draw(kernels="e", repeat=4, kernel_names={"e": FOREACH_ADAM.replace("FusedAdamMathFunctor", "Norm")})
    assert set(of_kernels(with_grids(clipped, 100_000), 2)) == {1}


def test_copies_and_collectives():
    drawn = draw(kernels="e       ", copies="hh d x m", nccl="  ==  s ", repeat=4)
    place = only_place(drawn)
    factors = work_factors(place, 2.0, 1)
    rows = place.work.rows
    assert factors[rows["copies"]][:4].tolist() == [2, 1, 2, 2]  # the batch; the loss; activations; zeros for them
    assert factors[rows["collectives"]][:2].tolist() == [1, 2]  # gradients; activations


# The step


def test_fixed_costs_are_paid_once():
    """Twelve units: five of them the host's, beside six of kernels and one of the optimizer, whose end it waits for."""
    host_waits = with_grids(draw(kernels="   GGGGGGM  ", host=["   ll" + "s" * 5 + "  "], repeat=6), 100_000)
    assert step_units(host_waits, 1) == pytest.approx(12, rel=0.01)
    assert step_units(host_waits, 2) == pytest.approx(18, rel=0.01)
    assert step_units(host_waits, 0.5) == pytest.approx(9, rel=0.01)


def test_a_step_that_the_host_limits_takes_a_larger_batch_for_nothing():
    drawn = with_grids(draw(kernels="e         " * 3, host=["l         " * 3, "o" * 30], repeat=6), 100_000)
    assert step_units(drawn, 4) == pytest.approx(30, rel=0.01)
    assert step_units(drawn, 20) == pytest.approx(60, rel=0.01)


def test_a_loader_in_the_training_s_thread_takes_longer():
    lanes = {"kernels": "      G   ", "host": ["      l  s"[:10], "IIIII     ", "o" * 10], "repeat": 6}
    drawn = with_grids(draw(**lanes), 1)
    assert step_units(drawn, 1, paced=False) == pytest.approx(10, rel=0.02)
    assert step_units(drawn, 3, paced=False) == pytest.approx(20, rel=0.02)


def test_a_loader_with_a_pace_of_its_own_takes_longer_for_each_batch():
    drawn = with_grids(draw(kernels="      G   ", host=["      l   ", "iiiii     ", "o" * 10], repeat=8), 1)
    assert step_units(drawn, 1) == pytest.approx(10, rel=0.02)
    assert step_units(drawn, 2) == pytest.approx(20, rel=0.02)


@FEW
@given(random_graphs(), st.integers(0, 2))
def test_a_batch_of_the_same_size_changes_nothing(found, case):
    same = with_batch(found, 1.0, case)
    assert same.duration_ns.tolist() == found.duration_ns.tolist()
    assert [lag.tolist() for lag in same.lag_ns] == [lag.tolist() for lag in found.lag_ns]
    assert same.extra_ns.tolist() == found.extra_ns.tolist()
    assert simulate([same]).step_ns == simulate([found]).step_ns


@FEW
@given(random_graphs(), st.floats(1.1, 64))
def test_no_call_changes_and_no_work_gets_shorter_with_a_larger_batch(found, factor):
    larger = [with_batch(found, factor, case) for case in range(3)]
    host = (found.kind == HOST) & ~loader_nodes(found)
    for each in larger:
        assert each.duration_ns[host].tolist() == found.duration_ns[host].tolist()
        assert (each.duration_ns >= found.duration_ns).all()
        assert (each.duration_ns[found.kind == WORK] <= np.ceil(factor * found.duration_ns[found.kind == WORK])).all()
    steps = [simulate([each]).step_ns for each in larger]
    assert steps == sorted(steps, reverse=True)
    assert steps[2] >= simulate([found]).step_ns * (1 - 1e-9)
