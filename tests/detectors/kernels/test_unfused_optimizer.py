"""unfused-optimizer: the update runs tensor by tensor."""

from __future__ import annotations

import json

import pytest
from builders import ELEMENTWISE, FOREACH_ADAM, draw, findings, of_step, only_finding, summary
from msgspec.structs import replace

from perfdoctor.model.columns import Text
from perfdoctor.records.savings import Saving

NAMES = {"e": ELEMENTWISE, "f": ELEMENTWISE.replace("Add", "Mul")}

#: bitsandbytes (csrc/kernels.cu): one launch for each tensor reads and writes all that the update needs, once.
BITSANDBYTES = "void kOptimizerStatic8bit2StateBlockwise<__nv_bfloat16, 0, 256, 1>(__nv_bfloat16*, __nv_bfloat16*)"


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
    # 20 kernels of 20 µs: 0.4 ms, of which 2 µs and 7 of 20 passes over 0.36 ms are left: 0.272 ms are saved
    assert findings("unfused-optimizer", step(20, of=690)) == []  # 2.9 % of the step
    assert len(findings("unfused-optimizer", step(20, of=650))) == 1  # 3.1 %, of which 2.1 are saved
    assert findings("unfused-optimizer", step(20, of=650), min_saved_share=0.021) == []
    assert len(findings("unfused-optimizer", step(5))) == 1  # 5 kernels of a few large tensors count as many do


def test_it_stays_silent_where_many_tensors_are_updated_by_one_launch():
    fused = {"e": FOREACH_ADAM, "f": "void at::native::multi_tensor_apply_kernel<BinaryOpListAlphaFunctor<float>>(int)"}
    assert findings("unfused-optimizer", step(40, kernel_names=fused)) == []


def test_it_stays_silent_where_one_kernel_does_all_of_the_update_of_a_tensor():
    static = BITSANDBYTES.replace("kOptimizerStatic8bit", "kPreconditionOptimizerStatic8bit")
    assert findings("unfused-optimizer", step(40, kernel_names={"e": BITSANDBYTES, "f": static})) == []


def test_of_one_kernel_a_tensor_no_pass_over_memory_is_saved():
    one = {"mark": "w", "legend": {"w": ("ranges", "Optimizer.step#SGD.step")}, "kernel_names": {"e": ELEMENTWISE}}
    one["kernel_names"]["f"] = ELEMENTWISE
    assert only_finding("unfused-optimizer", step(40, **one)).values["fused_ms"] == pytest.approx(0.724)
    assert findings("unfused-optimizer", step(20, of=650, **one)) == []


@pytest.mark.parametrize("optimizer", ["LBFGS", "Muon", "SparseAdam"])
def test_it_stays_silent_where_the_optimizer_has_no_way_but_tensor_by_tensor(optimizer):
    at_work = {"w": ("ranges", f"Optimizer.step#{optimizer}.step")}
    assert findings("unfused-optimizer", step(40, mark="w", legend=at_work)) == []
    assert findings("unfused-optimizer", host_step(300, mark="w", legend=at_work)) == []
    at_work["w"] = ("ranges", "Optimizer.step#Other.step")
    assert len(findings("unfused-optimizer", step(40, mark="w", legend=at_work))) == 1
    assert only_finding("unfused-optimizer", host_step(300, mark="w", legend=at_work)).situation == "host-multi-tensor"


@pytest.mark.parametrize("optimizer", ["NAdam", "RAdam", "Adamax"])
def test_on_the_host_only_the_multi_tensor_update_is_offered_where_torch_has_no_fused_one(optimizer):
    at_work = {"w": ("ranges", f"Optimizer.step#{optimizer}.step")}
    assert only_finding("unfused-optimizer", host_step(300, mark="w", legend=at_work)).situation == "host-multi-tensor"


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


def test_of_an_op_that_reaches_beyond_the_optimizer_only_what_is_inside_counts():
    whole = large_step(sizes=False)
    last = whole.ops.name.equals("aten::addcdiv_")
    longer = whole.ops.with_columns(end_ns=whole.ops.end_ns + 29_000_000 * last)
    finding = only_finding("unfused-optimizer", whole.with_frame("ops", longer))
    assert finding.saving_ns_per_step == only_finding("unfused-optimizer", whole).saving_ns_per_step


def test_on_the_host_it_stays_silent_just_below_either_threshold():
    assert findings("unfused-optimizer", host_step(200, rest=7_700)) == []  # 400 of 8,101 units
    assert len(findings("unfused-optimizer", host_step(200, rest=7_500))) == 1
    assert findings("unfused-optimizer", host_step(200, rest=7_500), min_saved_share=0.043) == []  # 84 % of 5.06 %


#: Adam of one tensor, as torch 2.13 runs it without a GPU, each op with how many units of 100 µs it takes.
ADAM = [("add_", 1), ("lerp_", 30), ("mul_", 20), ("addcmul_", 40), ("sqrt", 80), ("div", 80), ("add_", 20),
        ("addcdiv_", 40)]  # fmt: skip
_SIDE = 2048
_OPERANDS = {"lerp_": 2, "addcmul_": 3, "addcdiv_": 3}


def large_step(ops=ADAM, *, sizes: bool = True, optimizer: str = "Adam", around: str = ""):
    """A step of 300 units and then the optimizer's, over one tensor of 16 MB; `around`: one more op around its ops."""
    chars = "123456789"[: len(ops)]
    update = "".join(char * units for char, (_, units) in zip(chars, ops, strict=True))
    legend = {char: ("ops", f"aten::{name}") for char, (name, _) in zip(chars, ops, strict=True)}
    legend |= {"U": ("ranges", f"Optimizer.step#{optimizer}.step"), "0": ("ops", around)}
    lanes = ["o" * 300 + " " + (("0" if around else "U") * len(update)), " " * 301 + update]
    drawn = draw(host=[*lanes, " " * 301 + "U" * len(update)], repeat=4, unit_us=100, legend=legend)
    if not sizes:
        return drawn
    shapes, types = zip(*(operands(drawn.ops.name[row], drawn.ops.duration_ns[row]) for row in range(len(drawn.ops))),
                        strict=True)  # fmt: skip
    ops_frame = drawn.ops.with_columns(input_shapes=Text.of(shapes), input_types=Text.of(types))
    return replace(drawn, frames={**drawn.frames, "ops": ops_frame})


def operands(name: str, ns: int) -> tuple[str, str]:
    if ns < 200_000:  # the count of steps, a number
        return "[[], []]", '["float", "Scalar"]'
    many = _OPERANDS.get(name.removeprefix("aten::"), 1)
    return json.dumps([[_SIDE, _SIDE]] * many), json.dumps(["float"] * many)


def test_on_the_host_a_few_large_tensors_are_judged_by_the_bytes_that_they_need():
    finding = only_finding("unfused-optimizer", large_step())
    assert (finding.situation, finding.values["kernels_per_step"]) == ("host-large", 8.0)
    # Beyond the 10 µs of a call the ops take 31 ms for 19 passes over 16 MB. What is in place makes 3 + 2 + 4 + 2 + 4
    # passes in 15 ms, and 7 passes at this rate are left; at the rate of all at the most.
    passing = 31.1 - 8 * 0.01
    in_place = (30 + 20 + 40 + 20 + 40) / 10 - 5 * 0.01
    expected = [passing - 7 / 19 * passing, passing - 7 / 15 * in_place]
    saved = finding.saving_ns_per_step
    calls = 31.1 - passing
    assert saved.low / 1e6 == pytest.approx(expected[0] + 0.4 * calls, rel=0.01)
    assert saved.likely / 1e6 == pytest.approx(expected[1] + 0.84 * calls, rel=0.01)
    assert saved.likely <= saved.high <= 31_100_000
    assert "19 passes over the parameters where a fused update needs 7" in summary(finding)


def test_on_the_host_without_shapes_the_passes_of_the_optimizer_say_what_is_left():
    finding = only_finding("unfused-optimizer", large_step(sizes=False))
    passing, calls = 31.1 - 8 * 0.01, 8 * 0.01
    assert finding.saving_ns_per_step.likely / 1e6 == pytest.approx(passing * (1 - 7 / 18) + 0.84 * calls, rel=0.01)
    assert "passes" not in summary(finding)


def test_on_the_host_one_operation_over_a_large_tensor_has_nothing_to_fuse():
    assert findings("unfused-optimizer", large_step([("add_", 1), ("add_", 200)], optimizer="SGD")) == []
    momentum = [("mul_", 1), ("mul_", 60), ("add_", 100), ("add_", 100)]
    assert len(findings("unfused-optimizer", large_step(momentum, optimizer="SGD"))) == 1


def test_on_the_host_multi_tensor_ops_count_as_the_ops_that_they_call():
    loops = large_step(around="aten::_foreach_addcdiv_")
    assert only_finding("unfused-optimizer", loops).values["kernels_per_step"] == 8.0
    # RMSprop has no fused implementation, and is called so already.
    assert findings("unfused-optimizer", large_step(around="aten::_foreach_addcdiv_", optimizer="RMSprop")) == []


def test_on_the_host_large_tensors_without_a_fused_implementation_are_no_finding():
    assert findings("unfused-optimizer", large_step(optimizer="RMSprop")) == []


def test_on_the_host_it_stays_silent_where_one_op_updates_all():
    """However many ops the fused one calls itself."""
    inner = ["o" * 400 + " " + "z" * 600, " " * 401 + "o " * 300, " " * 401 + "u" * 600]
    assert findings("unfused-optimizer", draw(host=inner, repeat=4, legend=FUSED)) == []


def test_on_the_host_it_stays_silent_where_the_fused_update_counts_the_steps_of_each_tensor():
    counted = ["o" * 400 + " " + "o " * 250 + "z" * 100, " " * 401 + "u" * 600]
    assert findings("unfused-optimizer", draw(host=counted, repeat=4, unit_us=10, legend=FUSED)) == []
    counted[0] = counted[0].replace("z", "o")
    assert len(findings("unfused-optimizer", draw(host=counted, repeat=4, unit_us=10, legend=FUSED))) == 1


@pytest.mark.parametrize("name", ["aten::_foreach_add_", "aten::mm", "aten::linalg_qr"])
def test_on_the_host_it_stays_silent_where_the_ops_are_no_updates_of_single_tensors(name):
    assert findings("unfused-optimizer", host_step(300, char="z ", legend={"z": ("ops", name)})) == []


def test_on_the_host_it_stays_silent_where_the_optimizer_calls_the_training_itself():
    """LBFGS runs forward and backward inside its step."""
    closure = host_step(300, char="oz ", legend={"z": ("ops", "autograd::engine::evaluate_function: AddBackward0")})
    assert findings("unfused-optimizer", closure) == []


def test_on_the_host_it_stays_silent_where_the_ops_are_not_the_optimizers():
    assert findings("unfused-optimizer", host_step(300, mark="r")) == []
