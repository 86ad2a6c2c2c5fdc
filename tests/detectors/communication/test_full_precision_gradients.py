"""full-precision-gradients: gradients travel in 32 bits while the model computes in 16."""

from __future__ import annotations

import pytest
from builders import draw_steps, findings, only_finding
from collective_builders import MIB, MS, described, under
from measured_builders import H100

from perfdoctor.model.timeline import merge


def step(kernel: str = "G", exposed: int = 10, *, of: int = 40, rank: int = 0, gpu: str = "", **columns):
    drawn = draw_steps(
        kernels=kernel * (of - exposed) + " " * exposed,
        nccl=" " * (of - exposed) + "=" * exposed,
        rank=rank,
        gpu=gpu,
    )
    return described(drawn, **{"bytes": 25 * MIB, **columns})


def test_it_fires_by_the_kernels_name():
    finding = only_finding("full-precision-gradients", step())
    assert finding.values["exposed_ms"] == 10
    assert finding.values["half_percent"] == 100
    assert finding.values["messages_per_step"] == 1
    saving = finding.saving_ns_per_step
    # half of the bytes of 10 ms
    assert (saving.low, saving.likely, saving.high) == (2.5 * MS, 5 * MS, 5 * MS)


@pytest.mark.parametrize("data_type", ["Float", "float", "f32"])
def test_it_fires_by_the_recorded_type_as_each_tool_writes_it(data_type):
    finding = only_finding("full-precision-gradients", step(data_type=data_type, bytes=25 * MIB))
    assert finding.evidence[2].value == 25 * MIB


def test_it_stays_silent_just_below_the_threshold():
    assert findings("full-precision-gradients", step(exposed=1)) == []  # 2.5 %
    assert len(findings("full-precision-gradients", step(exposed=1, of=33))) == 1
    assert findings("full-precision-gradients", step(bytes=MIB - 1)) == []
    assert len(findings("full-precision-gradients", step(bytes=MIB))) == 1


def test_it_stays_silent_where_the_model_computes_in_32_bits():
    assert findings("full-precision-gradients", step("S")) == []
    assert findings("full-precision-gradients", step("T")) == []


def test_it_stays_silent_where_it_is_not_known_in_what_the_model_computes():
    assert findings("full-precision-gradients", step("#")) == []


@pytest.mark.parametrize("data_type", ["BFloat16", "bf16", "half", "Long"])
def test_it_stays_silent_for_gradients_of_another_type(data_type):
    assert findings("full-precision-gradients", step(data_type=data_type)) == []


def test_it_stays_silent_for_gathered_parameters():
    assert findings("full-precision-gradients", step(kind="all_gather", data_type="Float")) == []


def test_without_sizes_it_takes_several_ranks():
    """Of one rank alone, a long message may be a short one that waits."""
    assert findings("full-precision-gradients", step(bytes=-1)) == []
    both = merge([step(bytes=-1, rank=rank) for rank in (0, 1)])
    assert only_finding("full-precision-gradients", both).confidence == "high"


def test_it_is_a_symptom_of_exposed_communication():
    assert "full-precision-gradients" in under(step(), "exposed-communication")


def test_gradients_are_converted_and_back():
    """Of 2.5 GB each byte costs four of memory traffic: 3 ms on an H100 with HBM3, which FSDP does without."""
    size = 2_500_000_000
    saving = only_finding("full-precision-gradients", step(bytes=size, gpu=H100)).saving_ns_per_step
    conversions = 4 * size / 3350e9 * 1e9
    assert (saving.likely, saving.high) == (pytest.approx(5 * MS - conversions, rel=1e-3), 5 * MS)
