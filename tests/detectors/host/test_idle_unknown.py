"""idle-unknown: the device was idle and the recording does not tell why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from builders import draw, findings, of_step, only_finding, summary

from perfdoctor.model.timeline import Frame


def gap(width: int, *, of: int = 40, **more):
    """Two kernels with a gap; a window of `of` units of 1 ms."""
    left = (of - width) // 2
    return draw(kernels="#" * left + " " * width + "+" * (of - width - left), unit_us=1000, **more)


def test_it_fires_where_nothing_of_the_host_was_recorded():
    finding = only_finding("idle-unknown", gap(10))
    assert finding.situation == "no-calls"
    assert finding.values == of_step("idle", 10.0, 40.0)
    assert finding.confidence == "low"
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (0, 10_000_000)
    assert "contains nothing from the host" in summary(finding)


def test_it_tells_a_recording_that_holds_calls_only():
    finding = only_finding("idle-unknown", gap(10, host="l" + " " * 23 + "l"))
    assert finding.situation == "calls-only"
    assert "only CUDA calls were recorded" in summary(finding)


def test_it_tells_a_recording_that_holds_all_and_still_proves_nothing():
    finding = only_finding("idle-unknown", gap(10, host=["l" + " " * 23 + "l", "r"]))
    assert finding.situation == ""
    assert "this recording does not show" in summary(finding)


def test_it_stays_silent_just_below_the_threshold():
    assert findings("idle-unknown", gap(2, of=67)) == []  # 2.99 %
    assert len(findings("idle-unknown", gap(2, of=66))) == 1  # 3.03 %


def test_it_stays_silent_where_the_cause_is_proven():
    picture = gap(10, host=["l" + " " * 23 + "l", " " * 14 + "i" * 11])
    assert findings("idle-unknown", picture) == []


def test_it_stays_silent_where_only_one_of_two_streams_is_idle():
    assert findings("idle-unknown", draw(kernels=["##  ##  ##  ", "  ++  ++  ++"])) == []


def test_stretches_are_counted_a_step():
    picture = draw(kernels="  #  #  #", host="l        ", repeat=5, recorded=["kernels", "calls", "ranges"])
    finding = only_finding("idle-unknown", picture)
    assert finding.evidence[1].value == 2.0


def graphs(between: int, **more):
    """Two kernels of one CUDA graph with a gap between them; a window of 40 units of 1 ms."""
    left = (40 - between) // 2
    picture = " " + "#" * (left - 1) + " " * between + "+" * (40 - between - left)
    drawn = draw(kernels=picture, host=["@@", "o"], unit_us=1000, **more)
    same = np.ones(len(drawn.kernels), dtype=np.int64)
    frames = {**drawn.frames, "kernels": drawn.kernels.with_columns(correlation=same)}
    return type(drawn).build(frames, drawn.recorded)


def test_kernels_lost_inside_a_cuda_graph_are_reported_and_promise_nothing():
    finding = only_finding("idle-unknown", graphs(10))
    assert finding.situation == "inside-graphs"
    assert finding.values["idle_ms"] == 10.0
    assert finding.saving_ns_per_step.high == 0
    assert "most likely busy" in summary(finding)


def test_it_stays_silent_where_hardly_a_kernel_of_a_graph_was_lost():
    assert findings("idle-unknown", graphs(1)) == []  # 1 of 39 ms


def two_devices(first: str, second: str):
    """One process; no call tells who launched what. Units of 1 ms."""
    drawn = [draw(kernels=picture, device=device, unit_us=1000) for device, picture in enumerate((first, second))]
    kernels = Frame.join([each.kernels for each in drawn])
    return replace(drawn[0], frames={**drawn[0].frames, "kernels": kernels})


def test_where_another_device_of_the_process_works_meanwhile_it_is_a_symptom_of_what_that_one_does():
    """Nothing proves what a device waits for; that the other one works tells much."""
    waits = only_finding("idle-unknown", two_devices("#" * 10 + " " * 20 + "#" * 10, "#" * 40))
    assert waits.symptom_of == ("data-parallel", "uneven-gpus", "peer-copies")
    gap_in_both = "#" * 10 + " " * 20 + "#" * 10
    assert only_finding("idle-unknown", two_devices(gap_in_both, gap_in_both)).symptom_of == ()
