"""pipeline-bubbles: stages of a pipeline wait for each other's messages."""

from __future__ import annotations

import pytest
from builders import draw_steps, findings, only_finding
from collective_builders import MS, described, under

from perfdoctor.records.savings import Saving

LEGEND = {
    "R": ("ranges", "nccl:recv 1<-0"),
    "X": ("ranges", "nccl:all_to_all"),
}


def step(waits: int = 5, *, of: int = 20, launched_in: str = "R", group_size: int = -1):
    """Twice a step: compute, and a receive that is waited for."""
    half = "#" * (of - waits) + " " * waits
    drawn = draw_steps(
        kernels=half * 2,
        nccl=(" " * (of - waits) + "s" * waits) * 2,
        host=[(launched_in * (of - waits) + " " * waits) * 2],
        legend=LEGEND,
    )
    return described(drawn, group_size=group_size)


def test_it_fires_where_a_stage_stands_in_receives():
    finding = only_finding("pipeline-bubbles", step())
    assert finding.values["messages_per_step"] == 2
    assert finding.values["exposed_ms"] == pytest.approx(10)
    assert finding.values["exposed_percent"] == pytest.approx(25)
    assert finding.saving_ns_per_step == Saving(2.5 * MS, 5 * MS, 10 * MS)


def test_it_fires_where_the_recording_tells_the_group():
    assert len(findings("pipeline-bubbles", step(launched_in=" ", group_size=4))) == 1


def test_it_stays_silent_just_below_the_threshold():
    assert findings("pipeline-bubbles", step(1, of=34)) == []  # 2.9 %
    assert len(findings("pipeline-bubbles", step(1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_the_kernel_may_be_an_all_to_all():
    """NCCL runs both with the same kernel: without a range or a group they cannot be distinguished."""
    assert findings("pipeline-bubbles", step(launched_in=" ")) == []
    assert findings("pipeline-bubbles", step(launched_in="X")) == []


def test_it_stays_silent_for_other_collectives():
    assert findings("pipeline-bubbles", described(step(), kind="all_to_all", group_size=4)) == []


def test_it_is_a_symptom_of_exposed_communication():
    assert "pipeline-bubbles" in under(step(), "exposed-communication")
