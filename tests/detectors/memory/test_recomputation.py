"""recomputation: forward work inside the backward pass."""

from __future__ import annotations

import pytest
from builders import BASE_NS, GEMM, draw, findings, frame, of_step, only_finding, summary, timeline
from msgspec.structs import replace

from perfdoctor.model.timeline import Device
from perfdoctor.records.savings import Saving

NODE = "autograd::engine::evaluate_function: ReluBackward0"
LEGEND = {
    "N": ("ops", NODE),
    "f": ("ops", "aten::conv2d"),
    "n": ("ops", "aten::layer_norm"),
    "B": ("ops", "aten::convolution_backward"),
    "v": ("ops", "aten::linear"),
    "z": ("ops", "autograd::engine::evaluate_function: CheckpointFunctionBackward"),
}


def step(again: int, *, of: int = 40, op: str = "f", node: str = "N", **more):
    """Forward, then a backward node on its own thread that launches `again` units of work in `op`, then the gradient."""
    rest = of - 10 - again
    # the forward work, the work done again (a kernel of a unit each, as it has other names), the gradient
    again_kernels = "".join("ef"[n % 2] for n in range(again))
    kernels = "G" * 10 + again_kernels + "D" * rest
    forward = ["l", "f"]
    backward = [
        " " * 10 + "l" * again + " l",
        " " * 10 + op * again + "B" * 3,
        " " * 10 + node * (again + 3),
    ]
    picture = {
        "kernels": kernels,
        "host": {1: forward, 2: backward},
        "kernel_names": {"e": GEMM, "f": "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>(int)"},
        "legend": LEGEND,
        "repeat": 5,
        "unit_us": 100,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_functions_of_the_forward_pass_run_in_the_backward_pass():
    finding = only_finding("recomputation", step(10))
    # ten kernels of 100 µs in a step of 4 ms
    assert finding.values == {
        **finding.values,
        "kernels_per_step": 10.0,
        **of_step("again", 1.0, 4.0),
        "free_mib": 0,
        "needed_mib": 0,
    }
    # five of them are matmuls: their results are kept where nothing is known of the memory
    assert finding.saving_ns_per_step == Saving(0, 500_000, 1_000_000)
    assert finding.confidence == "low"
    assert "10 kernels a step recompute forward work" in summary(finding)


def test_it_fires_on_a_checkpoint_that_is_a_node_of_its_own():
    assert len(findings("recomputation", step(10, op="n", node="z"))) == 1


def test_it_stays_silent_just_below_the_threshold():
    assert findings("recomputation", step(1, of=40)) == []  # 2.5 %
    assert len(findings("recomputation", step(1, of=33))) == 1  # 3.03 %


def test_it_stays_silent_where_the_forward_pass_itself_runs_them():
    """The same functions on the training's thread, outside of any node."""
    assert findings("recomputation", step(10, node="v")) == []


def test_it_stays_silent_where_a_gradient_is_a_matmul():
    """Functions with a backward of their own call linear and matmul there."""
    assert findings("recomputation", step(10, op="v")) == []
    assert findings("recomputation", step(10, op="B")) == []


def test_a_linear_layer_beside_a_function_of_the_forward_pass_is_forward_work_too():
    """Six units: two norms, four of linear layers in front, between and behind; the gradient's three stay out."""
    host = {1: ["l", "f"], 2: [" " * 10 + "l" * 6 + " l", " " * 10 + "vnvnvvBBB", " " * 10 + "N" * 9]}
    assert only_finding("recomputation", step(6, host=host)).values["kernels_per_step"] == 6


def test_what_runs_beside_other_work_is_not_promised():
    """Counted by hand: 100 µs of work done again, half of it beside another kernel, in a window of 200 µs."""
    rows = timeline(
        kernels=[
            {"start_ns": 1_000, "end_ns": 101_000, "name": GEMM, "correlation": 1, "process": 1},
            {"start_ns": 51_000, "end_ns": 101_000, "name": "other", "stream": 8, "process": 1},
            {"start_ns": 101_000, "end_ns": 201_000, "name": "gradient", "correlation": 2, "process": 1},
        ],
        calls=[
            {"start_ns": 300, "end_ns": 310, "name": "cudaLaunchKernel", "correlation": 1, "process": 1, "thread": 2},
            {"start_ns": 600, "end_ns": 610, "name": "cudaLaunchKernel", "correlation": 2, "process": 1, "thread": 2},
        ],
        ops=[
            {"start_ns": 100, "end_ns": 900, "name": NODE, "process": 1, "thread": 2},
            {"start_ns": 200, "end_ns": 400, "name": "aten::conv2d", "process": 1, "thread": 2},
            {"start_ns": 500, "end_ns": 700, "name": "aten::convolution_backward", "process": 1, "thread": 2},
        ],
    )
    finding = only_finding("recomputation", rows)
    assert finding.values["again_percent"] == pytest.approx(100 * 50 / 200)
    assert finding.saving_ns_per_step.likely == 50_000  # a matmul


GIB = 1 << 30


def with_memory(reserved_gib: float, *, capacity_gib: float = 80, kept_gib: float | None = None):
    """The reserve as samples show it; or the allocator's totals, which rise by `kept_gib` while forward work runs again."""
    drawn = step(10)
    common = {"process": 100, "reserved_bytes": round(reserved_gib * GIB)}
    if kept_gib is None:
        signal, samples = "memory", [(at, GIB) for at in range(3)]
    else:
        signal, samples = "memory_totals", [
            (number * 4_000_000 + at, round(held * GIB))
            for number in range(5) for at, held in ((0, 1.0), (1_950_000, 1.0 + kept_gib), (3_000_000, 1.0))
        ]  # fmt: skip
    rows = [
        {**common, "start_ns": BASE_NS + at, "end_ns": BASE_NS + at, "allocated_bytes": held,
         "name": "cuda" if signal == "memory" else "[memory]"}
        for at, held in samples
    ]  # fmt: skip
    return replace(
        drawn, frames={**drawn.frames, signal: frame(signal, rows)}, recorded=drawn.recorded | {signal},
        devices=(Device(0, 0, "a GPU", memory_bytes=round(capacity_gib * GIB)),),
    )  # fmt: skip


@pytest.mark.parametrize(("reserved_gib", "likely"), [(20, 1_000_000), (40, 1_000_000), (60, 500_000), (80, 0)])
def test_the_reserve_says_how_much_could_be_kept(reserved_gib, likely):
    """With half of the memory free all of it, with less a proportional part, with none nothing."""
    finding = only_finding("recomputation", with_memory(reserved_gib))
    assert finding.saving_ns_per_step == Saving(0, likely, 1_000_000)
    assert finding.confidence == "medium"


@pytest.mark.parametrize(
    ("reserved_gib", "saving"), [(20, Saving(1_000_000, 1_000_000, 1_000_000)), (70, Saving(500_000, 500_000, 500_000))]
)
def test_where_the_totals_show_what_activations_need_it_is_held_against_what_is_free(reserved_gib, saving):
    """20 GiB for each backward pass: of 10 that are free half of them fit."""
    finding = only_finding("recomputation", with_memory(reserved_gib, kept_gib=20))
    assert finding.saving_ns_per_step == saving
    assert finding.values["needed_mib"] == pytest.approx(20 * 1024)
    assert "Keeping it instead takes 20,480 MiB." in summary(finding)
