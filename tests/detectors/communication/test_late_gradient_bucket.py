"""late-gradient-bucket: gradients are sent when no backward pass is left to hide them."""

from __future__ import annotations

import pytest
from builders import draw_steps, findings, only_finding, summary
from collective_builders import MIB, MS, described, under

from perfdoctor.model.timeline import merge

LEGEND = {
    "A": ("ops", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"),
    "B": ("ops", "autograd::engine::evaluate_function: MmBackward0"),
}


def step(
    hidden: int = 0, exposed: int = 10, *, of: int = 40, launched_in: str = "A", rank: int = 0, sizes: bool = True
):
    """Compute, and a bucket that begins `hidden` units before its end and lasts `exposed` units longer."""
    busy = of - exposed
    drawn = draw_steps(
        kernels="#" * busy + " " * exposed,
        nccl=" " * (busy - hidden) + "=" * (hidden + exposed),
        host=[launched_in * busy + " " * exposed],
        legend=LEGEND,
        rank=rank,
    )
    return described(drawn, bytes=25 * MIB if sizes else -1)


def test_it_fires_where_one_bucket_is_sent_at_the_end():
    finding = only_finding("late-gradient-bucket", step())
    assert (finding.situation, finding.values["buckets_per_step"], finding.values["hidden_percent"]) == (
        "one-bucket", 1, 0,
    )  # fmt: skip
    assert finding.values["exposed_ms"] == 10
    assert finding.values["largest_percent"] == 100
    saving = finding.saving_ns_per_step
    # of two buckets the first, which makes compute beside it 18.9 % longer; two thirds of 30 ms could hide all of it
    assert (saving.low, saving.likely, saving.high) == (0, int(5 * MS / 1.189), 10 * MS)
    assert "The gradients are sent in 1 bucket a step" in summary(finding)


def test_it_fires_where_the_largest_of_several_comes_last():
    several = draw_steps(
        kernels="#" * 30 + " " * 10,
        nccl=" " * 20 + "=" * 4 + " " * 6 + "-" * 10,
        host=["A" * 30 + " " * 10],
        legend=LEGEND,
    )
    finding = only_finding("late-gradient-bucket", described(several, bytes=[2 * MIB, 6 * MIB] * 6))
    assert (finding.situation, finding.values["buckets_per_step"]) == ("", 2)
    assert finding.values["largest_percent"] == 75
    assert round(finding.values["hidden_percent"]) == 29  # 4 of 14 ms


def test_it_stays_silent_just_below_the_threshold():
    assert findings("late-gradient-bucket", step(11, 10)) == []  # 52 % hidden
    assert len(findings("late-gradient-bucket", step(9, 10))) == 1
    assert findings("late-gradient-bucket", step(0, 1)) == []  # 2.5 % of the step


def test_it_stays_silent_for_sums_that_no_gradient_hook_launched():
    """Tensor parallelism sums in the backward pass, too: inside the layers' own nodes."""
    assert findings("late-gradient-bucket", step(launched_in="B")) == []
    assert findings("late-gradient-bucket", step(launched_in=" ")) == []


def test_it_stays_silent_where_the_host_is_what_compute_waits_for():
    """The bucket is exposed, but compute goes on while it still travels: nothing waited for it."""
    host_bound = draw_steps(
        kernels="#" * 10 + " " * 20 + "#" * 10,
        nccl=" " * 10 + "=" * 25 + " " * 5,
        host=["A" * 40],
        legend=LEGEND,
    )
    assert findings("late-gradient-bucket", host_bound) == []


def test_it_stays_silent_where_the_backward_pass_hides_what_it_can():
    """24 ms of gradients, 0.67 * 24 ms of backward pass: 9 ms beside it are more than its half, and of them not a half."""
    assert findings("late-gradient-bucket", step(9, 16)) == []
    assert len(findings("late-gradient-bucket", step(7, 16))) == 1


def test_of_gradients_longer_than_the_backward_pass_only_that_is_promised():
    saving = only_finding("late-gradient-bucket", step(0, 24)).saving_ns_per_step
    # of two buckets of 12 ms the first is ready after half of 0.67 * 16 ms: so much is hidden, less what it takes
    assert saving.likely == pytest.approx(0.67 * 16 / 2 * MS / 1.189, abs=2)
    assert saving.high == round(0.67 * 16 * MS)


def test_with_several_ranks_it_is_sure():
    both = merge([step(rank=0), step(rank=1)])
    finding = only_finding("late-gradient-bucket", both)
    assert (finding.confidence, finding.saving_ns_per_step.low) == ("high", int(5 * MS / 1.189) // 2)


def test_it_stays_silent_where_one_rank_alone_may_have_waited():
    """Neither sizes nor other ranks: a long all-reduce may be a short one that waits."""
    assert findings("late-gradient-bucket", step(sizes=False)) == []
    both = merge([step(rank=0, sizes=False), step(rank=1, sizes=False)])
    assert len(findings("late-gradient-bucket", both)) == 1


def test_it_is_a_symptom_of_exposed_communication():
    assert "late-gradient-bucket" in under(step(), "exposed-communication")
