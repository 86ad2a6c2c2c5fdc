"""unfused-cross-entropy: the loss over many classes, step by step."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary

LOGARITHM = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float,"
    " at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)"
)
GRADIENT = "void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float, long>(float*)"


def step(units: int, *, of: int = 40, names=(LOGARITHM, GRADIENT), **more):
    """Units of the logarithm and of the gradient in turn; the rest of the step is a matmul."""
    picture = {
        "kernels": "G" * (of - units) + "".join("ab"[n % 2] for n in range(units)),
        "kernel_names": {"a": names[0], "b": names[1]},
        "launched_us_before": 50,
        "repeat": 6,
        "unit_us": 100,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_the_loss_takes_many_passes():
    finding = only_finding(
        "unfused-cross-entropy",
        step(10),
        avoidable_share_low=0.3,
        avoidable_share_likely=0.5,
        avoidable_share_high=0.8,
    )
    # ten kernels of 100 µs in a step of 4 ms
    assert finding.values == {
        "kernels_per_step": 10.0,
        "kernels_ms": pytest.approx(1.0),
        "step_ms": pytest.approx(4.0),
        "kernels_percent": pytest.approx(25.0),
    }
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (300_000, 500_000, 800_000)
    assert "10 kernels a step compute softmax, loss and their gradients" in summary(finding)


@pytest.mark.parametrize(
    "name",
    [
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)",
        "void <unnamed>::softmax_warp_backward<float, float, float, (int)4, (bool)1>(T2 *, const T1 *)",
    ],
)
def test_it_fires_on_the_kernels_for_fewer_classes(name):
    assert len(findings("unfused-cross-entropy", step(10, names=(name, name)))) == 1


def test_it_stays_silent_just_below_the_threshold():
    assert findings("unfused-cross-entropy", step(2, of=41)) == []  # 4.9 %
    assert len(findings("unfused-cross-entropy", step(2, of=40))) == 1


@pytest.mark.parametrize(
    "name",
    [
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, SoftMaxForwardEpilogue>(float*)",
        "triton_red_fused__log_softmax_nll_loss_forward_4",
        "void liger_cross_entropy_kernel(float*)",
    ],
)
def test_it_stays_silent_on_an_attention_and_on_a_fused_loss(name):
    assert findings("unfused-cross-entropy", step(10, names=(name, name))) == []


def test_the_number_is_that_of_a_count_by_hand():
    """700 µs of them, 200 µs beside a kernel on another stream."""
    beside = step(7, kernels=["G" * 33 + "abababa", " " * 33 + "GG" + " " * 5])
    assert only_finding("unfused-cross-entropy", beside).values["kernels_ms"] == pytest.approx(0.5)
