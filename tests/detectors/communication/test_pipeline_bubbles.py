"""pipeline-bubbles: stages of a pipeline wait for each other's messages."""

from __future__ import annotations

import pytest
from builders import draw_steps, findings, only_finding, summary, timeline
from collective_builders import MS, described, under

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.records.savings import Saving

LEGEND = {
    "R": ("ranges", "nccl:recv 1<-0"),
    "X": ("ranges", "nccl:all_to_all"),
    "Y": ("ranges", "nccl:coalesced"),
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


def test_messages_that_one_kernel_sends_together_count_and_that_nobody_knows_their_ends_is_said():
    """As Megatron sends them; torch names no ends before 2.5."""
    assert len(findings("pipeline-bubbles", step(launched_in="Y"))) == 1
    finding = only_finding("pipeline-bubbles", two_stages(20, 20))
    assert "Which ranks these messages join is not recorded: the 2 ranks are compared" in summary(finding)
    assert "not recorded" not in summary(only_finding("pipeline-bubbles", step()))  # one rank has no others


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


def two_stages(first_ms: int, last_ms: int, *, rows: tuple[int, int] | None = None, steps: int = 5):
    """Two stages on processors, four micro-batches a step: the first computes and sends, the last receives and computes.

    gloo marks its messages on the threads that asked for them. `rows`: what each multiplies by 256 x 256, by stage.
    """
    drawn: dict[str, list[dict[str, object]]] = {"ops": [], "ranges": []}
    took, at = (first_ms, last_ms), [0, 0]

    def add(signal: str, rank: int, start: int, end: int, name: str, **more: object) -> None:
        drawn[signal].append({"start_ns": start * MS, "end_ns": end * MS, "name": name, "rank": rank, "process": 100 + rank, **more})  # fmt: skip

    for number in range(steps):
        begun = max(at)
        at = [begun, begun]
        for _ in range(4):
            given = {"input_shapes": f"[[{(rows or took)[0]}, 256], [256, 256]]", "input_types": '["float", "float"]'} if rows else {}  # fmt: skip
            add("ops", 0, at[0], at[0] + took[0], "aten::mm", **given)
            sent = at[0] + took[0]
            over = max(sent, at[1]) + 1
            add("ranges", 0, sent, over, "gloo:send")
            add("ranges", 1, at[1], over, "gloo:recv")
            given = {"input_shapes": f"[[{(rows or took)[1]}, 256], [256, 256]]", "input_types": '["float", "float"]'} if rows else {}  # fmt: skip
            add("ops", 1, over, over + took[1], "aten::mm", **given)
            at = [sent, over + took[1]]
        for rank in (0, 1):
            add("ranges", rank, begun, max(at), f"ProfilerStep#{number}")
    return timeline(**drawn, world_size=2)


def test_uneven_stages_are_named_with_what_even_ones_bring():
    finding = only_finding("pipeline-bubbles", two_stages(30, 10))
    assert finding.situation == "uneven"
    assert "rank 0 computes 120.0 ms of a 131.0 ms step, a mean rank 80.0 ms" in summary(finding)
    assert "With 33 % of that rank's compute in lighter stages (rank 1 computes 40.0 ms)" in summary(finding)
    # four micro-batches, half of whose messages are those of each rank: all but one at the pace of the slower stage
    assert finding.values["micro_batches"] == 2  # one message a micro-batch is drawn
    assert finding.saving_ns_per_step.likely == pytest.approx(40 * MS * (1 - 1 / 2))
    assert finding.explains == ("exposed-communication",)


def test_compute_beside_a_message_on_its_way_is_compute():
    """The first stage goes on while gloo sends, on whose thread it is marked."""
    (first, _) = prepare(two_stages(30, 40)).places
    assert first.compute.total_ns == 5 * 4 * 30 * MS


def test_even_stages_have_bubbles_all_the_same():
    assert only_finding("pipeline-bubbles", two_stages(20, 20)).situation == ""


def test_a_stage_that_computes_longer_without_more_work_has_no_layer_to_give():
    assert only_finding("pipeline-bubbles", two_stages(30, 10, rows=(64, 64))).situation == ""
    assert only_finding("pipeline-bubbles", two_stages(30, 10, rows=(192, 64))).situation == "uneven"
