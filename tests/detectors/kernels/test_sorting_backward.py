"""sorting-backward: gradients of look-ups that sort the indices first."""

from __future__ import annotations

import pytest
from builders import draw, findings, of_step, only_finding, summary

from perfdoctor.records.savings import Saving

SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy, false, long, long, unsigned int>(unsigned int*)"
SUM = (
    "void at::native::(anonymous namespace)::indexing_backward_kernel<float, 4>(long const*, long const*, float const*)"
)
LEGEND = {"N": ("ops", "autograd::engine::evaluate_function: IndexBackward0"), "z": ("ops", "aten::sort")}


def step(sort: int, total: int, *, of: int = 40, node: str = "N", **more):
    """A gradient that launches a sort and a sum, of so many units; then a matmul."""
    rest = of - 1 - sort - total
    picture = {
        "kernels": "G" + "s" * sort + "i" * total + "G" * rest,
        "kernel_names": {"s": SORT, "i": SUM},
        "host": ["llll", "o" + node * 2],
        "legend": LEGEND,
        "repeat": 6,
        "unit_us": 100,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_a_gradient_sorts():
    finding = only_finding("sorting-backward", step(6, 4), avoidable_share_low=0.3, avoidable_share_likely=0.6)
    # a sort of 600 µs and a sum of 400 in a step of 4 ms
    assert finding.values == {"kernels_per_step": 2.0, **of_step("kernels", 1.0, 4.0)}
    assert finding.saving_ns_per_step == Saving(300_000, 600_000, 1_000_000)
    assert "2 kernels a step sort indices" in summary(finding)


def test_without_ops_only_the_sum_is_known_to_belong_to_it():
    picture = step(6, 4, host=(), launched_us_before=50)
    assert only_finding("sorting-backward", picture).values["kernels_ms"] == pytest.approx(0.4)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("sorting-backward", step(0, 1, of=40, host=(), launched_us_before=50)) == []  # 2.5 %
    assert len(findings("sorting-backward", step(0, 1, of=33, host=(), launched_us_before=50))) == 1  # 3.03 %


def test_it_stays_silent_where_the_program_sorts():
    assert findings("sorting-backward", step(10, 0, host=["lll", "ozz"])) == []


def test_it_stays_silent_on_tables_of_recommenders_that_sort_in_their_own_update():
    name = "split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float>"
    assert findings("sorting-backward", step(6, 4, node="z", kernel_names={"s": SORT, "i": name})) == []


def test_the_number_is_that_of_a_count_by_hand():
    """A sum of 400 µs, 100 µs of it beside a kernel on another stream."""
    beside = step(0, 0, kernels=["G" * 36 + "iiii", " " * 36 + "G" + " " * 3], host=(), launched_us_before=50)
    assert only_finding("sorting-backward", beside).values["kernels_ms"] == pytest.approx(0.3)
