"""FLOP and MFU of public recordings, recomputed from their JSON with plain Python."""

from __future__ import annotations

import bisect
import json
from collections import defaultdict
from pathlib import Path

import pytest
from folders import RECORDINGS
from recorded import of_recordings, plain_json, recording

from perfdoctor.metrics.work.efficiency import efficiency
from perfdoctor.records.work_done import Efficiency

pytestmark = pytest.mark.recordings


def of(*names: str) -> pytest.MarkDecorator:
    return of_recordings(RECORDINGS / "kineto" / name for name in names)


def counted(path: Path) -> Efficiency:
    result = efficiency(recording(path).run)
    assert result is not None
    return result


def events(path: Path) -> list[dict]:
    return [event for event in plain_json(path)["traceEvents"] if event.get("ph") == "X"]


def flop_of(event: dict) -> int:
    """By the formulas of a textbook, of the ops that these recordings have."""
    shapes, values = event["args"]["Input Dims"], event["args"].get("Concrete Inputs", [])
    if event["name"] in ("aten::mm", "aten::addmm", "aten::bmm"):
        *batch, rows, inner = shapes[1 if event["name"] == "aten::addmm" else 0]
        columns = shapes[2 if event["name"] == "aten::addmm" else 1][-1]
        return 2 * (batch[0] if batch else 1) * rows * inner * columns
    if event["name"] == "aten::_scaled_dot_product_flash_attention":
        (batch, heads, queries, size), keys = shapes[0], shapes[1][2]
        return 4 * batch * heads * queries * keys * size
    gradient = event["name"] == "aten::convolution_backward"
    image, weight = shapes[1:3] if gradient else shapes[:2]
    if gradient:
        places, times = shapes[0][2] * shapes[0][3], json.loads(values[10].lower())[:2].count(True)
    else:
        stride, padding, dilation = (json.loads(text) for text in values[3:6])
        sides = [
            (image[2 + i] + 2 * padding[i] - dilation[i] * (weight[2 + i] - 1) - 1) // stride[i] + 1 for i in (0, 1)
        ]
        places, times = sides[0] * sides[1], 1
    out, into, high, wide = weight
    return 2 * image[0] * out * into * high * wide * places * times


OPS = ("mm", "addmm", "bmm", "_scaled_dot_product_flash_attention", "convolution", "convolution_backward")


def by_plain_python(path: Path) -> tuple[int, float]:
    """FLOP of all ops whose kernels were recorded, and the share of the matmul kernels' time that they explain."""
    rows = events(path)
    ops = defaultdict(list)
    for event in rows:
        if event.get("cat") == "cpu_op" and event["name"] in {f"aten::{op}" for op in OPS}:
            ops[event["pid"], event["tid"]].append(
                (float(event["ts"]), float(event["ts"]) + float(event["dur"]), event)
            )
    for of_thread in ops.values():
        of_thread.sort(key=lambda row: row[0])
    calls = {
        event["args"]["correlation"]: event
        for event in rows
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    reached: dict[int, dict] = {}
    for kernel in (event for event in rows if event.get("cat") == "kernel"):
        call = calls.get(kernel["args"].get("correlation"))
        of_thread = ops.get((call["pid"], call["tid"]), []) if call else []
        place = bisect.bisect_right([row[0] for row in of_thread], float(call["ts"])) - 1 if of_thread else -1
        if place >= 0 and float(call["ts"]) < of_thread[place][1]:
            reached[id(of_thread[place][2])] = of_thread[place][2]
    return sum(flop_of(event) for event in reached.values()), len(reached)


@of("compile-triton-mi300.json.gz")
def test_a_whole_window_holds_the_flop_of_all_ops_that_launched_a_kernel(path: Path):
    """No steps here: the window is the whole recording. Seven products and one attention."""
    flop, ops = by_plain_python(path)
    assert ops == 8
    assert counted(path).flop_per_step == flop


@of("resnet-ddp-mi300-rank0.json.gz")
def test_a_training_step_is_three_forward_passes_and_what_is_done_again(path: Path):
    """ResNet-18 on 10 images of 224 × 224, the published 1.814 billion multiply-adds each; with checkpoints.

    The gradient of the first image is asked for by nobody: 2 · 10 · 64 · 3 · 7 · 7 · 112² FLOP less.
    """
    result = counted(path)
    forward, first = 2 * 10 * 1.814e9, 2 * 10 * 64 * 3 * 7 * 7 * 112**2
    assert result.model_flop_per_step == pytest.approx(3 * forward - first, rel=1e-3)
    assert result.recomputed_flop_per_step == pytest.approx(forward - first, rel=1e-3)
    assert result.hfu / result.mfu == pytest.approx(result.flop_per_step / result.model_flop_per_step)
    assert (result.known_share, result.gpu, result.data_type) == (1.0, "AMD Instinct MI300X", "bf16")
    flop, _ = by_plain_python(path)
    assert 2 * result.flop_per_step <= flop <= 3 * result.flop_per_step  # two whole steps, and the edges of others


@of("qwen-0.5b-h100.json.gz", "bert-small-h100.json.gz", "resnet-ddp-mi300-rank0.json.gz",
    "eager-b200.json.gz", "ddp-a100-rank3-of-8.json.gz", "ddp-v100-rank1-of-2.json.gz")  # fmt: skip
def test_no_kernel_of_a_public_recording_is_faster_than_its_gpu(path: Path):
    """A sparse rate in the table, or FLOP counted twice, would show here."""
    rows = [row for row in counted(path).roofline.rows if row.kind != "memory" and row.share_of_roof is not None]
    assert rows
    assert all(0 < row.share_of_roof < 1 for row in rows)


@of("qwen-0.5b-h100.json.gz")
def test_kernels_without_a_launch_are_unknown_and_lower_the_share_that_is_known(path: Path):
    """436 of 1,465 kernels were launched before the recording began."""
    result = counted(path)
    assert 0.6 < result.known_share < 0.8
    assert 0.1 < result.mfu < 0.15


@of("resnet50-workers4.pt.trace.json.gz")
def test_older_recordings_do_not_tell_where_convolutions_lay_their_weights(path: Path):
    """So that of a ResNet next to nothing is counted, and no share of the peak is reported."""
    result = counted(path)
    assert result.known_share < 0.01
    assert (result.mfu, result.lacks) == (None, ("shapes",))
