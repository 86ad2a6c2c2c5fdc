"""unfused-optimizer: the update runs tensor by tensor."""

from __future__ import annotations

import pytest
from builders import ELEMENTWISE, FOREACH_ADAM, draw, findings, only_finding, summary

NAMES = {"e": ELEMENTWISE, "f": ELEMENTWISE}


def step(updates: int, *, of: int = 100, mark: str = "u", **more):
    """A step of `of` units: forward and backward, then `updates` kernels of one unit each."""
    chain = "".join("ef"[n % 2] for n in range(updates))
    before = of - updates - 1
    picture = {
        "kernels": " " + "G" * before + chain,
        "host": ["l" + " " * (before - 1) + "l" * updates, " " * before + mark * updates],
        "kernel_names": NAMES,
        "repeat": 6,
        "unit_us": 20,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_each_tensor_has_kernels_of_its_own():
    finding = only_finding("unfused-optimizer", step(40), recoverable_share_low=0.3, recoverable_share_likely=0.6)
    # 40 kernels of 20 µs in a step of 2 ms
    assert finding.values == {
        "kernels_per_step": 40.0,
        "update_ms": pytest.approx(0.8),
        "step_ms": pytest.approx(2.0),
        "update_percent": pytest.approx(40.0),
        "mean_us": pytest.approx(20.0),
    }
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (240_000, 480_000, 720_000)
    assert "40 kernels a step, 20 µs each: 0.8 ms of a 2.0 ms step (40 %)" in summary(finding)


def test_it_stays_silent_just_below_either_threshold():
    assert findings("unfused-optimizer", step(19)) == []  # 19 % of the step, but 19 kernels
    assert len(findings("unfused-optimizer", step(20))) == 1
    assert findings("unfused-optimizer", step(20, of=800)) == []  # 20 kernels, but 2.5 % of the step
    assert len(findings("unfused-optimizer", step(20, of=660))) == 1  # 3.03 %


def test_it_stays_silent_where_many_tensors_are_updated_by_one_launch():
    fused = {"e": FOREACH_ADAM, "f": "void at::native::multi_tensor_apply_kernel<BinaryOpListAlphaFunctor<float>>(int)"}
    assert findings("unfused-optimizer", step(40, kernel_names=fused)) == []


def test_it_stays_silent_where_the_kernels_are_not_the_optimizers():
    assert findings("unfused-optimizer", step(40, mark="r")) == []


def test_it_stays_silent_where_no_call_tells_who_launched_them():
    assert findings("unfused-optimizer", step(40, host=["", "u" * 40])) == []


def test_it_stays_silent_on_a_run_without_any_place():
    assert findings("unfused-optimizer", draw(host="u", mark=None)) == []
