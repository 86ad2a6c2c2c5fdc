"""idle-sms: kernels in which most of the GPU has nothing to do, as its counters saw."""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw_steps, findings, only_finding, summary
from counters_builder import sampled

from perfdoctor.model.timeline import Text

MS = 1_000_000


def step(active: float, *, few: int = 10, of: int = 40, dram: float = 0.05, **more):
    """Steps of `of` ms, of which `few` are element-wise kernels that keep this share of the SMs at work."""
    picture = {"kernels": "e" * few + "G" * (of - few), "sm_count": 132, "blocks": 16, **more}
    counted = {"sm_active_share": active, "dram_read_share": dram, "dram_write_share": 0.0}
    return sampled(draw_steps(**picture), {"elementwise": counted})


def test_it_fires_on_sixteen_blocks_for_132_sms():
    finding = only_finding("idle-sms", step(0.12), filled_share=0.5)
    assert finding.situation == "few-blocks"
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (
        0, pytest.approx(10 * MS * 0.88 / 2, rel=0.01), pytest.approx(10 * MS * 0.88, rel=0.01),
    )  # fmt: skip
    said = summary(finding)
    assert "keep 12 % of the SMs at work" in said
    assert "with 16 blocks for 132 SMs" in said


def test_a_last_wave_of_few_blocks_is_reported_as_such():
    assert only_finding("idle-sms", step(0.53, blocks=140)).situation == "uneven"


def test_a_grid_that_was_not_recorded_is_not_made_up():
    finding = only_finding("idle-sms", step(0.12, blocks=-1))
    assert (finding.situation, finding.confidence) == ("", "low")


def test_it_stays_silent_just_above_the_share_of_sms_and_just_below_that_of_the_step():
    assert findings("idle-sms", step(0.62)) == []
    assert len(findings("idle-sms", step(0.58))) == 1
    assert findings("idle-sms", step(0.12, few=1, of=26)) == []
    assert len(findings("idle-sms", step(0.12, few=1, of=24))) == 1


def test_what_the_memory_takes_is_no_gain():
    """Half of the SMs suffice to move 80 % of what the memory gives: nine tenths of that are 0.89 of the time."""
    finding = only_finding("idle-sms", step(0.5, dram=0.8), reached_memory_share=0.9)
    assert finding.saving_ns_per_step.high == pytest.approx(10 * MS * (1 - 0.8 / 0.9), rel=0.05)


def test_whole_graphs_are_no_kernels():
    drawn = draw_steps(kernels="@" * 10 + "G" * 10, sm_count=132, blocks=16)
    assert findings("idle-sms", sampled(drawn, {"CUDA graph": {"sm_active_share": 0.1}})) == []


def test_without_counters_it_is_skipped_and_not_clear():
    assert findings("idle-sms", draw_steps(kernels="e" * 10 + "G" * 10, sm_count=132, blocks=16)) == []


def test_kernels_of_one_name_are_told_apart_by_their_grids():
    """Those with 16 blocks leave the GPU empty, those with 4,096 fill it: their mean would be neither."""
    drawn = draw_steps(
        kernels="e" * 5 + "G" * 5 + "x" * 20 + "G" * 5, kernel_names={"x": "scan"}, sm_count=132, blocks=4096
    )
    counted = sampled(drawn, {"elementwise": {"sm_active_share": 0.12}, "scan": {"sm_active_share": 1.0}})
    kernels, few = counted.kernels, counted.kernels.name.where(lambda name: "elementwise" in name)
    names = Text.of(["one_kernel" if each == "scan" or "elementwise" in each else each for each in kernels.name])
    grids = np.where(few, 16, 4096)
    finding = only_finding("idle-sms", counted.with_frame("kernels", kernels.with_columns(name=names, blocks=grids)))
    assert finding.values["kernels_ms"] == pytest.approx(5)
    assert finding.values["blocks"] == 16
