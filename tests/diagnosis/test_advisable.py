"""Advice is for this machine and this program: what cannot be used is left out, and what is not known is said."""

from __future__ import annotations

import made_programs as made
import pytest
from builders import draw
from folders import ROOT
from msgspec.structs import replace
from tables import of_each

from perfdoctor.diagnosis.advisable import advisable
from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.diagnosis.predicted_saving import PredictedSaving
from perfdoctor.diagnosis.records import Found
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.hurts import HURTS
from perfdoctor.vocabulary.rulebook import RuleFix, load_rules

RULES = load_rules()
SAVING = Saving(0, 1, 2)
#: The situation of the finding in which the advice hurts, where a row is about one, and another one.
SITUATIONS = {
    "loader workers for samples that cost little": ("cheap-batches", "single-process"),
    "loader workers beside a training that has all cores": ("busy-cores", "single-process"),
    "more loader workers where batches are dear to receive": ("handed-over", "workers"),
}

#: By the advice of each row: code that has it, a recording where it hurts, and one where it does not.
CASES = {
    "a fused optimizer": (
        "AdamW(parameters, fused=True)",
        made.with_torch(made.program(gpu="NVIDIA A40"), "2.2.0"),
        made.with_torch(made.program(gpu="NVIDIA A40"), "2.5.1"),
    ),
    "torch.compile": ("torch.compile(model)", made.changing_shapes(), made.few_shapes()),
    "CUDA graphs by torch.compile": (
        "torch._inductor.config.triton.cudagraphs = True",
        made.changing_shapes(),
        made.few_shapes(),
    ),
    "cudnn.benchmark": ("torch.backends.cudnn.benchmark = True", made.changing_shapes(), made.program()),
    "bfloat16": ("model.to(torch.bfloat16)", made.program(gpu=made.T4), made.program()),
    "float16": ("model.to(torch.float16)", made.program(gpu=made.GTX1660), made.program(gpu=made.T4)),
    "mixed precision": ('torch.autocast("cpu")', made.on_a_processor(), made.program()),
    "channels_last": (
        "model.to(memory_format=torch.channels_last)",
        made.program(gpu="Tesla V100-SXM2-16GB", kernels="SSS SSS SSS SSS "),
        made.program(gpu="Tesla V100-SXM2-16GB", kernels="GGG GGG GGG GGG "),
    ),
    "updates of all tensors at once (foreach)": (
        "AdamW(parameters, foreach=True)",
        made.reserved(0.97),
        made.reserved(0.5),
    ),
    **{advice: ("DataLoader(dataset, num_workers=8)", made.program(), made.program()) for advice in SITUATIONS},
}


def found(fix: RuleFix, situation: str = "", rule: str = "host-work") -> Found:
    finding = Finding(rule, SAVING, "high", {}, situation=situation)
    return Found(replace(RULES[rule], fixes=(fix,)), finding, PredictedSaving(SAVING))


def fix(how: str, needs: tuple[str, ...] = ()) -> RuleFix:
    return RuleFix("Do it", how, "minutes", changes_numerics=False, needs=needs)


def advised(how: str, drawn, needs: tuple[str, ...] = (), situation: str = ""):
    return advisable(found(fix(how, needs), situation), prepare(drawn))


@of_each("row", {row.advice: row for row in HURTS})
def test_advice_that_was_measured_to_hurt_is_not_given_there_and_is_elsewhere(row):
    how, there, elsewhere = CASES[row.advice]
    in_it, beside = SITUATIONS.get(row.advice, ("", ""))
    here = advised(how, there, situation=in_it)
    if row.is_left_out:
        assert here.is_in_vain
        assert here.left_out == (f"Do it: {row.said}",)
    else:
        assert here.fixes == ((fix(how), row.said),)
    ((_, caution),) = advised(how, elsewhere, situation=beside).fixes
    assert caution == ""


def test_each_row_is_about_advice_that_a_rule_gives():
    advice = [each.how for rule in RULES.values() for each in rule.fixes]
    assert [row.advice for row in HURTS if not any(row.code.search(how) for how in advice)] == []


def test_rows_have_a_source_and_a_number():
    assert [
        row.advice for row in HURTS if not (row.source.startswith("https://") or (ROOT / row.source).is_file())
    ] == []
    assert [row.advice for row in HURTS if not any(char.isdigit() for char in row.measured)] == []


def test_a_fix_whose_need_is_not_met_is_left_out_with_the_reason():
    assert advised("x", made.program(gpu=made.T4), ("bf16",)).left_out == (
        "Do it: needs a GPU that computes in bfloat16 (compute capability 8.0), and this GPU does not",
    )


def test_a_fix_whose_need_is_met_says_nothing():
    assert advised("x", made.program(), ("bf16", "steady-shapes")).fixes == ((fix("x", ("bf16", "steady-shapes")), ""),)


def test_a_fix_whose_need_is_not_known_says_so():
    ((_, caution),) = advised("x", made.program(gpu=""), ("bf16",)).fixes
    assert caution == (
        "needs a GPU that computes in bfloat16 (compute capability 8.0): the recording does not say which GPU it was"
    )


def test_where_a_part_of_what_hurts_is_known_it_is_said_and_where_nothing_is_it_is_not():
    def caution(gpu):
        ((_, said),) = advised("fused=True", made.program(gpu=gpu)).fixes
        return said

    assert "85 TFLOP/s" in caution("NVIDIA A40"), "the torch is not known"
    assert caution("NVIDIA A100") == ""
    assert caution("") == ""


def waits_in_front_of_launches(gpu: str):
    """Steps in which the host launches too slowly, with shapes of their own."""
    lane = "#" * 4 + " " * 12
    return draw(
        kernels=lane, host=["l" + " " * 15, " " + "q" * 15, "o" * 16], gpu=gpu, repeat=6, unit_us=100, blocks=64
    )


@pytest.mark.parametrize(
    ("gpu", "title"),
    [
        (made.A100, "Train in mixed precision"),
        ("", "Train in mixed precision"),
        (made.T4, "Train in mixed precision with float16"),
    ],
)
def test_mixed_precision_is_in_the_type_that_the_gpu_has(gpu, title):
    drawn = made.program(gpu=gpu, kernels="SSSSSSSSSSSS", kernel_names={"S": "volta_sgemm_128x64_nn"})
    (advice,) = diagnose(drawn, [RULES["fp32-matmuls"]]).findings
    assert next(each.title for each in advice.fixes if each.effort == "hours") == title
    assert ["which GPU" in each.caution for each in advice.fixes if "mixed" in each.title] == [not gpu]


def test_graphs_are_left_out_where_shapes_change_and_what_helps_all_the_same_stays():
    drawn = made.with_grids(waits_in_front_of_launches(made.A100), range(1000))
    (advice,) = diagnose(drawn, [RULES["launch-bound"]]).findings
    titles = [each.title for each in advice.fixes]
    assert "Give each kernel more work (larger batch)" in titles
    assert "Compile the model with CUDA graphs" not in titles
    assert any(reason.startswith("Compile the model with CUDA graphs: ") for reason in advice.left_out)
    (steady,) = diagnose(waits_in_front_of_launches(made.A100), [RULES["launch-bound"]]).findings
    assert "Compile the model with CUDA graphs" in [each.title for each in steady.fixes]


def test_a_finding_of_which_no_fix_is_left_says_so_and_promises_nothing():
    only = fix("x", ("fp8",))
    rule = replace(RULES["launch-bound"], fixes=(only,))
    kept, lost = (diagnose(waits_in_front_of_launches(gpu), [rule]).findings for gpu in ("NVIDIA H100", made.T4))
    assert kept[0].saving_ns_per_step.likely > 0
    (advice,) = lost
    assert (advice.fixes, advice.saving_ns_per_step) == ((), Saving(0, 0, 0))
    assert "ms" in advice.summary, "its cost is still said"
    assert advice.summary.endswith(
        "Nothing that is known to help is of use here. Do it: needs a GPU that computes in fp8 (compute capability 8.9), "
        "and this GPU does not."
    )
