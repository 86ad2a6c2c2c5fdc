"""small-kernels: many kernels that are too small to fill the device."""

from __future__ import annotations

import random

import numpy as np
import pytest
from builders import ELEMENTWISE, draw, findings, of_step, only_finding, summary
from msgspec.structs import replace

from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules

RULES = tuple(load_rules().values())

CHAIN = {"e": ELEMENTWISE, "f": ELEMENTWISE}


def step(small: int, *, of: int = 100, **more):
    """A step of `of` units of 5 µs: kernels of 5 µs first, then one matmul."""
    chain = "".join("ef"[n % 2] for n in range(small))
    return draw(
        **{
            "kernels": chain + "G" * (of - small),
            "kernel_names": CHAIN,
            "launched_us_before": 3,
            "repeat": 6,
            "unit_us": 5,
            **more,
        }
    )


def test_it_fires_where_many_kernels_are_short():
    finding = only_finding("small-kernels", step(40))
    # 40 kernels of 5 µs in a step of 500 µs
    numbers = {"small_per_step": 40.0, **of_step("small", 0.2, 0.5), "mean_us": pytest.approx(5.0)}
    assert finding.values == {**finding.values, **numbers, "turns": 0, "looped_ms": 0}
    # one behind the other, one is left; where the window begins within them, one of each part
    assert finding.saving_ns_per_step == Saving(194_000, 194_000, 200_000)
    assert "40 kernels a step take 5.0 µs each" in summary(finding)


def test_it_is_surer_where_the_size_of_the_device_is_known():
    assert only_finding("small-kernels", step(40)).confidence == "low"
    assert only_finding("small-kernels", step(40, sm_count=108, blocks=10)).confidence == "medium"


def test_it_stays_silent_just_below_the_threshold():
    assert findings("small-kernels", step(15, of=400)) == []  # 3.75 %
    assert len(findings("small-kernels", step(16, of=400))) == 1  # 4 %


def test_it_stays_silent_where_there_are_few():
    assert findings("small-kernels", step(9, of=60)) == []  # 15 %, but nine kernels
    assert len(findings("small-kernels", step(10, of=60))) == 1


@pytest.mark.parametrize(
    "name", ["triton_poi_fused_add_{}", "CudaCodeGen::kernel{}(CudaCodeGen::Tensor<float, (int)5>)"]
)
def test_it_stays_silent_where_a_compiler_has_fused_them(name):
    assert findings("small-kernels", step(40, kernel_names={"e": name.format(1), "f": name.format(2)})) == []


def test_it_stays_silent_where_short_kernels_fill_the_device():
    assert findings("small-kernels", step(40, sm_count=108, blocks=108)) == []
    assert len(findings("small-kernels", step(40, sm_count=108, blocks=107))) == 1


def test_kernels_of_unknown_size_count_by_their_length():
    assert len(findings("small-kernels", step(40, sm_count=108, blocks=-1))) == 1


def test_it_stays_silent_where_kernels_are_just_as_long_as_the_limit():
    assert findings("small-kernels", step(40, unit_us=10)) == []
    assert len(findings("small-kernels", step(40, unit_us=9.9))) == 1


def test_it_stays_silent_where_short_kernels_are_matmuls():
    """A matmul is not fused away."""
    assert (
        findings("small-kernels", step(40, kernel_names={"e": "ampere_sgemm_32x32_tn", "f": "ampere_sgemm_32x32_tn"}))
        == []
    )


def test_it_stays_silent_where_convolutions_convert_their_layout():
    """No compiler fuses those: they are layout-transposes'."""
    names = {"e": "batched_transpose_32x16_half", "f": "void cudnn::ops::nchwToNhwcKernel<__half, __half>(P)"}
    assert findings("small-kernels", step(40, kernel_names=names)) == []


def test_it_stays_silent_where_the_optimizer_runs_them():
    """An update tensor by tensor is unfused-optimizer's."""
    chain = "".join("ef"[n % 2] for n in range(40))
    picture = draw(
        kernels=" " + chain + "G" * 59,
        kernel_names=CHAIN,
        host=["l" * 41 + " " * 59, "u" * 40],
        repeat=6,
        unit_us=5,
    )
    assert findings("small-kernels", picture) == []


def test_it_stays_silent_where_a_graph_is_short():
    assert (
        findings("small-kernels", step(40, kernel_names={"e": "graph", "f": "graph"}, kernels="@" * 1 + "G" * 99)) == []
    )


def test_small_kernels_beside_each_other_save_no_more_than_the_time_they_fill():
    """Three streams run the same chain at once: 120 % "of the step" cannot be saved in part."""
    chain = "".join("ef"[n % 2] for n in range(40))
    picture = draw(kernels=[chain] * 3, kernel_names=CHAIN, launched_us_before=3, repeat=6, unit_us=5)
    (finding,) = findings("small-kernels", picture)
    assert finding.values["small_percent"] <= 100
    assert finding.saving_ns_per_step.high <= finding.values["step_ms"] * 1e6


# --- on a run without a GPU ---


def host_step(ops: int, *, rest: int = 1_000, unit_us: float = 10, **more):
    """A step of the training's thread: `ops` of one unit, one unit apart, and one long op."""
    return draw(**{"host": "o " * ops + "o" * rest, "repeat": 4, "unit_us": unit_us, **more})


def test_it_fires_where_the_host_runs_thousands_of_short_ops():
    finding = only_finding("small-kernels", host_step(3_000))
    # 3,000 ops of 10 µs, 10 µs apart, in a step of 70 ms; behind the last one comes the long op
    assert finding.values == {
        **finding.values,
        "small_per_step": 3_000.0,
        **of_step("small", 59.99, 70.0),
        "mean_us": pytest.approx(10.0),
        "turns": 3_001,
        "looped_ms": pytest.approx(59.99),
        "left_ms": pytest.approx(0.01, abs=0.001),
    }
    # one call for all is as long as one of them
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == pytest.approx((29_990_000, 59_980_000, 59_990_000), rel=1e-6)
    assert (finding.confidence, finding.situation) == ("medium", "host")
    assert "runs 3,000 short ops a step, 10 µs each" in summary(finding)


def test_what_the_ops_of_a_loop_compute_beyond_their_dispatch_stays():
    (finding,) = findings("small-kernels", host_step(3_000, unit_us=60))
    # 3,000 ops of 60 µs and 2,999 pauses, which are too long for the call of an op; 50 µs of each op are computed
    assert finding.values["small_ms"] == pytest.approx(180)
    assert finding.saving_ns_per_step.likely == pytest.approx(3_000 * 10_000, rel=0.01)


CUT = {"x": ("ops", "aten::unbind"), "e": ("ops", "aten::eq"), "n": ("ops", "aten::is_nonzero")}


def test_a_loop_begins_where_its_rows_are_cut_out_of_a_tensor():
    """`for a, b in zip(guesses, labels)`: two long ops of many short ones, and Python that hands the rows over."""
    loop = "x" * 300 + " " * 20 + "x" * 300 + " " * 30 + "e n " * 1_100
    (finding,) = findings("small-kernels", draw(host=loop + "o" * 500, legend=CUT, repeat=4, unit_us=10))
    assert finding.values["looped_ms"] == pytest.approx((650 + 4_399) * 0.01)
    assert finding.values["turns"] == 1_100
    assert finding.saving_ns_per_step.likely == pytest.approx((650 + 4_399 - 2) * 10_000, rel=1e-6)
    between = "x" * 300 + " " * 20 + "o" + "x" * 300 + " " * 30 + "e n " * 1_100
    (finding,) = findings("small-kernels", draw(host=between + "o" * 500, legend=CUT, repeat=4, unit_us=10))
    assert finding.values["looped_ms"] == pytest.approx((330 + 4_399) * 0.01)


def test_of_short_ops_in_no_loop_a_compiler_fuses_some():
    order = "".join(random.Random(1).choices("xen", k=3_000))
    (finding,) = findings("small-kernels", draw(host=" ".join(order) + "o" * 1_000, legend=CUT, repeat=4, unit_us=10))
    assert finding.values["turns"] == 0
    assert finding.saving_ns_per_step == Shares(0.0, 0.4).of(finding.affected_ns)


def test_on_a_cpu_nothing_of_it_speaks_of_a_gpu():
    (advice,) = (each for each in diagnose(host_step(3_000), RULES).findings if each.rule == "small-kernels")
    assert advice.title == "Many tiny ops (vectorise or batch them)"
    assert "GPU" not in f"{advice.why} {advice.summary} {advice.confidence_because} {advice.not_a_problem_when}"
    assert [fix.title for fix in advice.fixes][:2] == [
        "Replace the whole loop with one call on the tensor",
        "Fuse them with torch.compile",
    ]


def test_on_the_host_it_stays_silent_just_below_either_threshold():
    assert findings("small-kernels", host_step(1_999)) == []
    assert len(findings("small-kernels", host_step(2_000))) == 1
    assert findings("small-kernels", host_step(2_000, rest=9_400)) == []  # 3,999 of 13,400 units
    assert len(findings("small-kernels", host_step(2_000, rest=9_300))) == 1


def test_on_the_host_it_stays_silent_where_the_ops_are_as_long_as_the_limit():
    assert findings("small-kernels", host_step(3_000, unit_us=100)) == []
    assert len(findings("small-kernels", host_step(3_000, unit_us=99))) == 1


def preempted(lengths_us: list[int]):
    """Four steps of 3,000 ops, of which each step's tenth takes so long: the machine took the processor away."""
    drawn = host_step(3_000)
    ops = drawn.ops
    rows = np.flatnonzero(ops.duration_ns == 10_000)[9::3_000]
    end = ops.end_ns.copy()
    end[rows] = ops.start_ns[rows] + 1_000 * np.array(lengths_us)
    return replace(drawn, frames={**drawn.frames, "ops": ops.with_columns(end_ns=end)})


def test_an_op_that_the_machine_interrupted_is_as_short_as_it_is_in_other_steps():
    (once,) = findings("small-kernels", preempted([10, 18, 10, 10]), short_host_op_ns=15_000)
    assert once.values["small_per_step"] == 3_000
    (mostly,) = findings("small-kernels", preempted([18, 18, 18, 10]), short_host_op_ns=15_000)
    assert mostly.values["small_per_step"] == 2_999


def test_a_long_pause_between_two_nodes_of_a_backward_pass_is_theirs_as_well():
    node = {"n": ("ops", "autograd::engine::evaluate_function: MulBackward0"), "b": ("ranges", "backward")}
    passes = ["b" * 6_200 + " " * 800, "n " * 3_000 + " " * 198 + "n" + "o" * 801]
    (finding,) = findings("small-kernels", draw(host=passes, legend=node, repeat=4, unit_us=10))
    # 6,199 units from the first node to the end of the last, with a pause of 1.99 ms before that
    assert finding.values["small_ms"] == pytest.approx(61.99)


def test_on_the_host_it_stays_silent_where_the_optimizer_has_the_short_ops():
    """They have a rule of their own."""
    updates = ["o " * 3_000 + "o" * 1_000, "u" * 6_000]
    assert findings("small-kernels", draw(host=updates, repeat=4, unit_us=10)) == []


def test_on_the_host_it_stays_silent_where_the_loader_has_the_short_ops():
    samples = ["o " * 3_000 + "o" * 1_000, "I" * 6_000]
    assert findings("small-kernels", draw(host=samples, repeat=4, unit_us=10)) == []
