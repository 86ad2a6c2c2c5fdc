"""idle-unknown: the device was idle and the recording does not show why."""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw, findings, frame, of_step, only_finding, summary
from msgspec.structs import replace

from perfdoctor.model.timeline import UNKNOWN, Frame
from perfdoctor.vocabulary.rulebook import load_rules


def gap(width: int, *, of: int = 40, **more):
    """Two kernels with a gap; a window of `of` units of 1 ms."""
    left = (of - width) // 2
    return draw(kernels="#" * left + " " * width + "+" * (of - width - left), unit_us=1000, **more)


def test_it_fires_where_nothing_of_the_host_was_recorded():
    finding = only_finding("idle-unknown", gap(10))
    assert finding.situation == "no-calls"
    assert finding.values.items() >= of_step("idle", 10.0, 40.0).items()
    assert finding.confidence == "low"
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (0, 10_000_000)
    assert "contains nothing from the host" in summary(finding)


def test_it_tells_a_recording_that_holds_calls_only():
    finding = only_finding("idle-unknown", gap(10, host="l" + " " * 23 + "l"))
    assert finding.situation == "calls-only"
    assert "only CUDA calls were recorded" in summary(finding)


def test_a_recording_of_the_host_that_proves_nothing_says_what_it_holds():
    finding = only_finding("idle-unknown", gap(10, host=["l" + " " * 23 + "l", "r"]))
    assert finding.situation == ""
    assert "nothing that was recorded of the host (host calls and ranges) spans these stretches" in summary(finding)


def test_ops_without_the_calls_that_launched_the_work_are_not_called_nothing():
    finding = only_finding("idle-unknown", gap(10, host=["o" * 40], recorded=["kernels", "ops"]))
    assert finding.situation == "no-launches"
    assert "Of the host framework ops were recorded, but not the calls that launched" in summary(finding)


def test_where_the_host_is_in_calls_of_the_system_the_longest_is_named():
    legend = {"z": ("os_calls", "sem_timedwait")}
    finding = only_finding("idle-unknown", gap(10, host=["l" + " " * 24 + "l", " " * 14 + "z" * 11], legend=legend))
    assert finding.situation == "in-system"
    assert "10.0 ms of it in `sem_timedwait`" in summary(finding)
    assert finding.evidence[2].rows[0][0] == "sem_timedwait"


def behind_an_event(host: list[str], **more):
    """Stream 7 works; the first work of stream 8 starts 30 units of 1 ms after its launch, in a window of 40."""
    recorded = ["kernels", "copies", "collectives", "calls", "ops", "functions"]
    return draw(kernels=["####", " " * 35 + "+++++"], host=host, unit_us=1000, recorded=recorded, **more)


def test_launched_work_behind_an_event_names_stream_wait_and_the_call_that_the_host_is_in():
    """As a decoder's does: the next batch is copied, and waits for the one before on another stream."""
    copy = {"legend": {"C": ("calls", "hipMemcpyWithStream"), "w": ("calls", "hipStreamWaitEvent")}}
    host = [" " * 5 + "C" * 32, "l wl", " " * 4 + "o" * 34, "f" * 39]
    drawn = behind_an_event(host, copies=" " * 36 + "D", **copy)
    finding = only_finding("idle-unknown", drawn)
    assert finding.situation == "queued"
    assert (finding.values["stream"], finding.values["longest_ms"]) == (8, 31.0)
    assert (
        "although work had been launched: it waits on stream 8 behind `hipStreamWaitEvent` (by the order of the "
        "calls) for up to 31.0 ms, while the host is in `hipMemcpyWithStream` for 32.0 ms (from `aten::add` in `train.py(10): log_metrics`)"
    ) in summary(finding)
    assert finding.evidence[2].rows == ((8, "hipStreamWaitEvent", "hipMemcpyWithStream", 1, 31_000_000, 31_000_000),)
    assert "not record" not in summary(finding)
    assert "does not show" not in summary(finding)


def test_a_wait_for_an_event_behind_the_launch_or_of_another_thread_is_not_named():
    for host in (["l  lw"], {1: ["l  l"], 2: "  w"}):
        finding = only_finding("idle-unknown", behind_an_event(host))
        assert finding.situation == "queued"
        assert "it waits on stream 8 for up to 31.0 ms. What it waits for is not in this recording." in summary(finding)


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
    """One process; no call shows who launched what. Units of 1 ms."""
    drawn = [draw(kernels=picture, device=device, unit_us=1000) for device, picture in enumerate((first, second))]
    kernels = Frame.join([each.kernels for each in drawn])
    return replace(drawn[0], frames={**drawn[0].frames, "kernels": kernels})


def test_where_another_device_of_the_process_works_meanwhile_it_is_a_symptom_of_what_that_one_does():
    """Nothing proves what a device waits for; that the other one works proves much."""
    waits = only_finding("idle-unknown", two_devices("#" * 10 + " " * 20 + "#" * 10, "#" * 40))
    assert waits.symptom_of == ("data-parallel", "uneven-gpus", "peer-copies")
    gap_in_both = "#" * 10 + " " * 20 + "#" * 10
    assert only_finding("idle-unknown", two_devices(gap_in_both, gap_in_both)).symptom_of == ()


@pytest.mark.parametrize(
    ("waits", "behind"),
    [
        ([(8, 7)], " behind `cudaStreamWaitEvent` for an event of stream 7"),
        ([(8, UNKNOWN)], " behind `cudaStreamWaitEvent`"),
        ([(7, 9)], ""),  # the other stream was made to wait, and did not hold this one up
    ],
)
def test_which_stream_waits_for_which_is_said_where_a_tool_recorded_it(waits, behind):
    drawn = behind_an_event(["l wl"])
    call = int(np.flatnonzero(drawn.calls.name.equals("cudaStreamWaitEvent"))[0])
    calls = drawn.calls.with_columns(
        correlation=np.where(np.arange(len(drawn.calls)) == call, 77, drawn.calls["correlation"])
    )
    at = {"start_ns": int(calls.start_ns[call]), "end_ns": int(calls.end_ns[call]), "correlation": 77, "name": "wait"}
    rows = [{**at, "stream": stream, "awaited_stream": awaited} for stream, awaited in waits]
    frames = {**drawn.frames, "calls": calls, "stream_waits": frame("stream_waits", rows)}
    finding = only_finding("idle-unknown", type(drawn).build(frames, drawn.recorded | {"stream_waits"}))
    assert f"it waits on stream 8{behind} for up to 31.0 ms" in summary(finding)


def test_without_a_gpu_its_title_speaks_of_none():
    rule = load_rules()["idle-unknown"]
    assert "GPU" in rule.in_words_of(frozenset(), without_gpu=False).title
    assert "GPU" not in rule.in_words_of(frozenset(), without_gpu=True).title
