"""tensor-parallel-exposed: each layer waits for the all-reduce of the one before."""

from __future__ import annotations

import pytest
from builders import draw_steps, findings, only_finding
from collective_builders import MIB, MS, described, under

from perfdoctor.records.savings import Saving

SIZES = {"bytes": 8 * MIB, "group_size": 8}
LEGEND = {"A": ("ops", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad")}


def step(layers: int = 4, *, kernel: str = "G", beside: bool = False, hook: bool = False):
    """Two products and two sums a layer, 3 ms and 1 ms each."""
    halves = 2 * layers
    return draw_steps(
        kernels=(kernel * 3 + ("#" if beside else " ")) * halves,
        nccl="   =" * halves,
        host=["A" * 4 * halves] if hook else (),
        legend=LEGEND,
    )


def test_it_fires_where_sums_of_one_size_stand_between_products():
    finding = only_finding("tensor-parallel-exposed", described(step(), **SIZES))
    assert (finding.values["messages_per_step"], finding.values["ranks"]) == (8, 8)
    assert finding.values["exposed_ms"] == pytest.approx(8)
    assert finding.values["exposed_percent"] == pytest.approx(25)
    assert finding.saving_ns_per_step == Saving(2 * MS, 4 * MS, 8 * MS)


def test_it_stays_silent_just_below_the_threshold():
    # of the six windows' edges none is cut: seven sums a step are too few
    seven = described(step(), bytes=([8 * MIB] * 7 + [4 * MIB]) * 6, group_size=8)
    assert findings("tensor-parallel-exposed", seven) == []


def test_it_stays_silent_in_a_large_group():
    assert findings("tensor-parallel-exposed", described(step(), bytes=8 * MIB, group_size=64)) == []


def test_it_stays_silent_for_gradients():
    assert findings("tensor-parallel-exposed", described(step(hook=True), **SIZES)) == []


def test_it_stays_silent_where_compute_runs_beside_them():
    assert findings("tensor-parallel-exposed", described(step(beside=True), **SIZES)) == []


def test_it_stays_silent_where_nothing_is_multiplied_between_them():
    assert findings("tensor-parallel-exposed", described(step(kernel="#"), **SIZES)) == []


def test_it_stays_silent_where_sizes_are_not_known():
    assert findings("tensor-parallel-exposed", step()) == []


def test_it_is_a_symptom_of_exposed_communication():
    assert "tensor-parallel-exposed" in under(described(step(), **SIZES), "exposed-communication")
