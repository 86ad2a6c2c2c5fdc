"""unfused-cross-entropy: the loss over many classes, step by step."""

from __future__ import annotations

import pytest
from builders import findings
from kernel_kind_cases import LOSS


@pytest.mark.parametrize(
    "name",
    [
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)",
        "void <unnamed>::softmax_warp_backward<float, float, float, (int)4, (bool)1>(T2 *, const T1 *)",
    ],
)
def test_it_fires_on_the_kernels_for_fewer_classes(name):
    assert len(findings("unfused-cross-entropy", LOSS.step(10, names=(name, name)))) == 1


@pytest.mark.parametrize(
    "name",
    [
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, SoftMaxForwardEpilogue>(float*)",
        "triton_red_fused__log_softmax_nll_loss_forward_4",
        "void cunn_SoftMaxXEntropyForward<4, c10::Half, float, float, c10::Half, LogSoftMaxForwardEpilogue>(float*, c10::Half*)",
        "void liger_cross_entropy_kernel(float*)",
    ],
)
def test_it_stays_silent_on_an_attention_and_on_a_fused_loss(name):
    assert findings("unfused-cross-entropy", LOSS.step(10, names=(name, name))) == []
