"""Treatments are read from their files without running them, and each is whole."""

from __future__ import annotations

import shlex

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.treatments import catalogue
from perfdoctor.treatments.choice import DiagnosedFinding, Machine, _Fix, _Speedup, arms
from perfdoctor.vocabulary.rulebook import load_rules

SHIPPED = catalogue.shipped()
NEEDS = {"cpu", "cuda", "ranks", "numa", "bf16", "compiler"}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_treatment_says_what_it_is(name):
    one = SHIPPED[name]
    assert one.patch
    assert one.risk
    assert one.touches
    assert set(one.needs) <= NEEDS
    assert set(one.rules) <= set(load_rules())
    assert one.rules


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import torch\n", "lacks a docstring"),
        ('"""Do it."""\n', "function apply"),
        ('"""Do it."""\nPATCH = "x"\nRISKS = ""\ndef apply(torch, given): ...\n', "RISKS"),
        ('"""Do it."""\nPATCH = "x"\nITEMS = 2 + x\ndef apply(torch, given): ...\n', "no treatment"),
        ('"""Do it."""\nPATCH = 3\ndef apply(torch, given): ...\n', "no treatment"),
    ],
)
def test_a_file_that_is_no_treatment_is_said_to_be_none(tmp_path, text, why):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(PerfdoctorError) as error:
        catalogue.read(tmp_path)
    assert why in error.value.what


def finding(rule, times=1.5, **values):
    fixes = tuple(_Fix(each.how) for each in load_rules()[rule].fixes)
    return DiagnosedFinding(rule, _Speedup(times - 0.1, times, times + 0.1), values, fixes)


def test_findings_choose_treatments_and_their_values():
    chosen, _ = arms(SHIPPED, [finding("input-wait", workers=3)], Machine(cores=8))
    first = chosen[0]
    assert first.rule == "input-wait"
    assert first.promised.likely == pytest.approx(1 / 3)
    assert "num_workers=3" in next(arm for arm in chosen if arm.name == "loader_workers").patch
    assert {arm.name for arm in chosen if not arm.rule} == {
        name for name, one in SHIPPED.items() if one.anyway and "input-wait" not in one.rules
    }


def test_what_a_finding_predicts_is_predicted_of_what_it_advises_alone():
    chosen, _ = arms(SHIPPED, [finding("input-wait"), finding("small-collectives")], Machine(cores=8, ranks=2))
    of_rule = {arm.name: arm.promised is not None for arm in chosen if arm.rule}
    assert of_rule["loader_workers"]
    assert of_rule["merged_all_reduces"]
    assert not of_rule["no_workers"]
    assert not of_rule["one_worker"]
    assert not of_rule["ddp_large_buckets"]


def test_what_the_finding_advises_comes_first_and_a_second_one_of_its_group_last():
    found = DiagnosedFinding(
        "unfused-optimizer", _Speedup(1.4, 1.5, 1.6), {}, (_Fix("AdamW(weights, fused=True)  # or foreach=True"),)
    )
    chosen, _ = arms(SHIPPED, [found, finding("busy-machine", 1.2)], Machine(cores=8))
    names = [arm.name for arm in chosen if arm.rule]
    assert names[:2] == ["fused_optimizer", "loader_workers"]
    assert names.index("foreach_optimizer") > 1


def test_what_cannot_work_here_is_left_out_with_its_reason():
    _, left_out = arms(SHIPPED, [finding("fp32-matmuls")], Machine(torch="2.13.0"))
    gpu = "there is no GPU"
    assert left_out == {"tf32": gpu, "autocast_fp16": gpu, "autocast_bf16": "the processor has no bfloat16"}
    _, left_out = arms(SHIPPED, [finding("unfused-optimizer")], Machine(torch="2.3.1"))
    assert left_out["fused_optimizer"] == "it needs torch 2.4"


def test_only_some_rules_or_some_fixes_can_be_asked_for():
    both = [finding("input-wait"), finding("unfused-optimizer")]
    chosen, _ = arms(SHIPPED, both, Machine(), only=["unfused-optimizer"])
    assert {arm.rule for arm in chosen} == {"unfused-optimizer"}
    chosen, _ = arms(SHIPPED, (), Machine(), fixes=["set_to_none"])
    assert [arm.name for arm in chosen] == ["set_to_none"]


def test_variables_of_a_treatment_are_filled_in():
    chosen, _ = arms(SHIPPED, (), Machine(cores=8, ranks=2), fixes=["torch_threads"])
    assert chosen[0].environment == {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4"}
    assert "set_num_threads(4)" in chosen[0].patch


@pytest.mark.parametrize(
    ("own", "tried"),
    [
        ("", "expandable_segments:True"),
        ("garbage_collection_threshold:0.8, expandable_segments:False",
         "garbage_collection_threshold:0.8,expandable_segments:True"),
        ("roundup_power2_divisions:[256:1,>:4]", "roundup_power2_divisions:[256:1,>:4],expandable_segments:True"),
    ],
)  # fmt: skip
def test_options_that_the_program_has_stay_beside_the_one_that_is_tried(own, tried):
    name = "PYTORCH_CUDA_ALLOC_CONF"
    chosen, _ = arms(SHIPPED, (), Machine(gpu="H100"), fixes=["expandable_segments"], own={name: own, "OTHER": "1"})
    assert chosen[0].environment == {name: tried}
    assert shlex.split(chosen[0].patch)[0] == f"{name}={tried}"


def test_options_under_the_other_name_of_their_variable_stay_as_well():
    own = {"PYTORCH_ALLOC_CONF": "garbage_collection_threshold:0.8"}
    chosen, _ = arms(SHIPPED, (), Machine(gpu="H100"), fixes=["expandable_segments"], own=own)
    both = "garbage_collection_threshold:0.8,expandable_segments:True"
    assert chosen[0].environment == {"PYTORCH_CUDA_ALLOC_CONF": both, "PYTORCH_ALLOC_CONF": both}
    assert chosen[0].patch.split()[0] == f"PYTORCH_ALLOC_CONF={both}"
    _, left_out = arms(SHIPPED, (), Machine(gpu="H100"), fixes=["expandable_segments"], own=own, given=list(own))
    assert left_out == {"expandable_segments": "--env sets PYTORCH_ALLOC_CONF"}


def test_a_treatment_by_a_variable_that_every_trial_is_to_have_is_left_out():
    machine = Machine(gpu="H100", ranks=8)
    chosen, left_out = arms(SHIPPED, (), machine, fixes=["nccl_ring", "nccl_bandwidth"], given=["NCCL_ALGO"])
    assert [each.name for each in chosen] == ["nccl_bandwidth"]
    assert left_out == {"nccl_ring": "--env sets NCCL_ALGO"}


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("large_blocks_whole", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"),
        ("expandable_segments", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ("nccl_ring", "NCCL_ALGO=allreduce:ring"),
        ("nccl_tree", "NCCL_ALGO=allreduce:tree"),
        ("nccl_low_latency", "NCCL_PROTO=LL"),
        ("nccl_bandwidth", "NCCL_PROTO=Simple"),
    ],
)
def test_what_a_library_reads_from_a_variable_is_set_before_the_program_starts(name, variable):
    chosen, _ = arms(SHIPPED, (), Machine(gpu="H100", ranks=8), fixes=[name])
    assert chosen[0].environment == dict([variable.split("=")])
    assert variable in chosen[0].patch
