"""depthwise-convolutions: each channel by itself."""

from __future__ import annotations

import pytest
from builders import findings, only_finding
from kernel_kind_cases import CHANNELS, DEPTHWISE, DEPTHWISE_WEIGHTS

GROUPED = "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, {}, float, 3, 3>(P)"


@pytest.mark.parametrize("names", [(DEPTHWISE, DEPTHWISE_WEIGHTS), (GROUPED, DEPTHWISE)])
def test_on_16_bits_it_promises_nothing(names):
    finding = only_finding(
        "depthwise-convolutions", CHANNELS.step(10, names=tuple(name.format("c10::Half") for name in names))
    )
    assert (finding.saving_ns_per_step.high, finding.situation) == (0, "half")


@pytest.mark.parametrize(
    "name",
    [
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28GridwiseGemm",
    ],
)
def test_it_stays_silent_on_full_convolutions(name):
    assert findings("depthwise-convolutions", CHANNELS.step(20, names=(name, name))) == []


def test_it_stays_silent_where_they_run_beside_other_work():
    assert (
        findings("depthwise-convolutions", CHANNELS.step(7, kernels=["G" * 33 + "abababa", " " * 33 + "G" * 7])) == []
    )
