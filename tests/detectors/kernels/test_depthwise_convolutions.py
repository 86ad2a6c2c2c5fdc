"""depthwise-convolutions: each channel by itself."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary

FORWARD = "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, {}, int>(P)"
WEIGHTS = "void at::native::(anonymous namespace)::conv_depthwise2d_grad_weight_kernel<{}, int>(P)"
GROUPED = "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, {}, float, 3, 3>(P)"


def step(units: int, *, of: int = 40, kind: str = "float", names=(FORWARD, WEIGHTS), **more):
    picture = {
        "kernels": "G" * (of - units) + "".join("ab"[n % 2] for n in range(units)),
        "kernel_names": {"a": names[0].format(kind), "b": names[1].format(kind)},
        "launched_us_before": 50,
        "repeat": 6,
        "unit_us": 100,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_channels_are_convolved_singly():
    finding = only_finding(
        "depthwise-convolutions",
        step(10),
        avoidable_share_low=0.1,
        avoidable_share_likely=0.3,
        avoidable_share_high=0.5,
    )
    # ten kernels of 100 µs in a step of 4 ms
    assert finding.values == {
        "kernels_per_step": 10.0,
        "kernels_ms": pytest.approx(1.0),
        "step_ms": pytest.approx(4.0),
        "kernels_percent": pytest.approx(25.0),
    }
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (100_000, 300_000, 500_000)
    assert finding.situation == "fp32"
    assert "10 kernels a step are depthwise convolutions" in summary(finding)


@pytest.mark.parametrize("names", [(FORWARD, WEIGHTS), (GROUPED, FORWARD)])
def test_on_16_bits_it_promises_nothing(names):
    finding = only_finding("depthwise-convolutions", step(10, kind="c10::Half", names=names))
    assert (finding.saving_ns_per_step.high, finding.situation) == (0, "half")


def test_it_stays_silent_just_below_the_threshold():
    assert findings("depthwise-convolutions", step(3, of=31)) == []  # 9.7 %
    assert len(findings("depthwise-convolutions", step(3, of=30))) == 1


@pytest.mark.parametrize(
    "name",
    [
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28GridwiseGemm",
    ],
)
def test_it_stays_silent_on_full_convolutions(name):
    assert findings("depthwise-convolutions", step(20, names=(name, name))) == []


def test_the_number_is_that_of_a_count_by_hand():
    """700 µs of them, 200 µs beside a kernel on another stream."""
    beside = step(7, kernels=["G" * 33 + "aaaaaaa", " " * 33 + "GG" + " " * 5])
    assert only_finding("depthwise-convolutions", beside).values["kernels_ms"] == pytest.approx(0.5)


def test_it_stays_silent_where_they_run_beside_other_work():
    assert findings("depthwise-convolutions", step(7, kernels=["G" * 33 + "abababa", " " * 33 + "G" * 7])) == []
