"""unfused-optimizer: the update runs tensor by tensor."""

from __future__ import annotations

import pytest
from builders import ELEMENTWISE, FOREACH_ADAM, draw, findings, of_step, only_finding, summary

from perfdoctor.records.savings import Saving

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
    finding = only_finding("unfused-optimizer", step(40), kernel_floor_ns=2_000)
    # 40 kernels of 20 µs in a step of 2 ms
    assert finding.values == {
        **finding.values,
        "kernels_per_step": 40.0,
        **of_step("update", 0.8, 2.0),
        "mean_us": pytest.approx(20.0),
    }
    # 5 tensors of 8 kernels: 7 of 20 passes are left, or of 14 to 23, and one start and end
    expected = [800_000 - 40 * 18_000 * left - 2_000 for left in (7 / 14, 7 / 20, 7 / 23)]
    saving = finding.saving_ns_per_step
    assert [saving.low, saving.likely, saving.high] == pytest.approx(expected, abs=2)
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


# --- on a run without a GPU ---

FUSED = {"z": ("ops", "aten::_fused_adamw_")}


def host_step(ops: int, *, unit_us: float = 10, rest: int = 400, char: str = "o ", mark: str = "u", **more):
    """A step of the training's thread: one long op, then inside the optimizer `ops` of one unit, one unit apart."""
    host = ["o" * rest + " " + char * ops, " " * (rest + 1) + mark * len(char) * ops]
    return draw(**{"host": host, "repeat": 4, "unit_us": unit_us, **more})


def test_it_fires_where_the_host_updates_tensor_by_tensor():
    finding = only_finding("unfused-optimizer", host_step(300))
    # 300 ops of 10 µs, 10 µs apart, in a step of 4 + 6 ms
    assert finding.values == {
        **finding.values,
        "kernels_per_step": 300.0,
        **of_step("update", 6.0, 10.01),
        "mean_us": pytest.approx(20.0),
    }
    assert finding.saving_ns_per_step == Saving(2_400_000, 5_040_000, 5_400_000)
    assert (finding.confidence, finding.situation) == ("medium", "host")
    assert "300 small ops a step inside the optimizer, tensor by tensor, 20 µs each" in summary(finding)


def test_on_the_host_it_stays_silent_just_below_either_threshold():
    assert findings("unfused-optimizer", host_step(199)) == []
    assert len(findings("unfused-optimizer", host_step(200))) == 1
    assert findings("unfused-optimizer", host_step(200, rest=7_700)) == []  # 400 of 8,101 units
    assert len(findings("unfused-optimizer", host_step(200, rest=7_500))) == 1


def test_on_the_host_it_stays_silent_where_one_op_updates_all():
    """However many ops the fused one calls itself."""
    inner = ["o" * 400 + " " + "z" * 600, " " * 401 + "o " * 300, " " * 401 + "u" * 600]
    assert findings("unfused-optimizer", draw(host=inner, repeat=4, legend=FUSED)) == []


@pytest.mark.parametrize("name", ["aten::_foreach_add_", "aten::mm", "aten::linalg_qr"])
def test_on_the_host_it_stays_silent_where_the_ops_are_no_updates_of_single_tensors(name):
    assert findings("unfused-optimizer", host_step(300, char="z ", legend={"z": ("ops", name)})) == []


def test_on_the_host_it_stays_silent_where_the_optimizer_calls_the_training_itself():
    """LBFGS runs forward and backward inside its step."""
    closure = host_step(300, char="oz ", legend={"z": ("ops", "autograd::engine::evaluate_function: AddBackward0")})
    assert findings("unfused-optimizer", closure) == []


def test_on_the_host_it_stays_silent_where_the_ops_are_not_the_optimizers():
    assert findings("unfused-optimizer", host_step(300, mark="r")) == []
