"""FLOP counted from a recorded trace are those that torch itself counts, to the last one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from torch_python import torch_python

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.work import flops_attention
from perfdoctor.metrics.work.op_work import OpWork, op_work
from perfdoctor.readers.kineto.trace import read

PROGRAM = Path(__file__).parent / "flop_programs.py"
pytestmark = pytest.mark.torch


OPS = {name: at for name, at in flops_attention._OPS.items() if name.startswith("aten::")}


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("traces")
    command = [torch_python(), str(PROGRAM), str(folder), *OPS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def recorded(given) -> tuple[Path, dict]:
    return given[0], given[1]["counted"]


def work_in(recorded, name: str) -> OpWork:
    (place,) = prepare(read(recorded[0] / f"{name}.json")).places
    return op_work(place)


def by_op(work: OpWork) -> dict[str, int]:
    assert not np.isnan(work.flop).any()
    found: dict[str, int] = {}
    for name, flop in zip(work.ops.name, work.flop.tolist(), strict=True):
        found[name] = found.get(name, 0) + int(flop)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "transformer",
        "transformer-causal",
        "fused-attention",
        "fused-attention-causal",
        "checkpointed",
        "resnet",
        "products",
        "convolutions",
        "grouped-apart",
        "transposed-apart",
    ],
)
def test_flop_of_a_trace_are_those_that_torch_counts(recorded, name):
    given = recorded[1][name]
    counted = by_op(work_in(recorded, name))
    assert {op.replace("aten::", "aten."): flop for op, flop in counted.items()} == given["by_op"]
    assert sum(counted.values()) == given["total"] > 0


@pytest.mark.parametrize(("whole", "apart"), [("grouped", "grouped-apart"), ("transposed", "transposed-apart")])
def test_groups_compute_what_they_do_one_by_one(recorded, whole, apart):
    """torch counts the weight's gradient as often again as there are groups: it does not agree with itself."""
    assert sum(by_op(work_in(recorded, whole)).values()) == recorded[1][apart]["total"]
    assert recorded[1][whole]["total"] > recorded[1][apart]["total"]


def test_a_causal_mask_halves_what_is_needed_and_not_what_is_counted(recorded):
    masked, full = (work_in(recorded, f"fused-attention{kind}") for kind in ("-causal", ""))
    assert by_op(masked) == by_op(full)
    is_attention = masked.ops.name.where(flops_attention.is_attention)
    # 32 tokens: of 32 · 32 pairs a triangle with its diagonal is left.
    assert (masked.needed_flop[is_attention] / masked.flop[is_attention]).tolist() == [(32 * 33 / 2) / 32**2] * 4
    assert np.array_equal(full.needed_flop, full.flop)
    assert np.array_equal(masked.needed_flop[~is_attention], masked.flop[~is_attention])


def test_work_done_again_is_the_forward_pass_of_the_blocks(recorded):
    """What checkpointing adds, against the same model without it: the whole forward pass of what is checkpointed."""
    again, once = work_in(recorded, "checkpointed"), work_in(recorded, "fused-attention-causal")
    added = recorded[1]["checkpointed"]["total"] - recorded[1]["fused-attention-causal"]["total"]
    assert again.again.any()
    assert not once.again.any()
    assert int(again.flop[again.again].sum()) == added
    assert int(again.model_flop[~again.again].sum()) == int(once.model_flop.sum())


def test_the_model_asks_for_the_scores_once(recorded):
    """A fused attention computes them again for its gradient; step by step they are kept."""
    fused, in_steps = work_in(recorded, "fused-attention"), work_in(recorded, "transformer")
    assert int(fused.model_flop.sum()) == recorded[1]["transformer"]["total"]
    assert int(fused.flop.sum()) > int(fused.model_flop.sum())
    assert np.array_equal(in_steps.model_flop, in_steps.flop)


def test_inputs_of_attention_stand_where_torch_declares_them(given):
    for name, at in OPS.items():
        arguments = given[1]["signatures"][name]
        assert arguments[at.causal] == "is_causal", name
        assert arguments[at.query : at.query + 3] == ["query", "key", "value"], name
        packed = [place for place, argument in enumerate(arguments) if argument == "cum_seq_q"]
        assert packed == ([] if at.sequences is None else [at.sequences]), name
