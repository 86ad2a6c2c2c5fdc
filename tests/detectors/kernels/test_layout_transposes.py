"""layout-transposes: channels to the back and to the front, around convolutions."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary

TO_BACK = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(P)"
TO_FRONT = "void nhwcToNchwKernel<float, float, float, true, false>(int, int, int, int, float const*, float*)"


def step(units: int, *, of: int = 40, names=(TO_BACK, TO_FRONT), **more):
    """Every second unit goes to the back, the others to the front; the rest of the step is a matmul."""
    picture = {
        "kernels": "G" * (of - units) + "".join("ab"[n % 2] for n in range(units)),
        "kernel_names": {"a": names[0], "b": names[1]},
        "launched_us_before": 50,
        "repeat": 6,
        "unit_us": 100,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_convolutions_convert():
    finding = only_finding("layout-transposes", step(10), avoidable_share_low=0.5, avoidable_share_likely=0.9)
    # ten kernels of 100 µs in a step of 4 ms
    assert finding.values == {
        "kernels_per_step": 10.0,
        "kernels_ms": pytest.approx(1.0),
        "step_ms": pytest.approx(4.0),
        "kernels_percent": pytest.approx(25.0),
    }
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (500_000, 900_000, 1_000_000)
    assert "10 kernels a step only convert tensors between NCHW and NHWC" in summary(finding)


def test_it_fires_on_an_amd_gpu():
    names = ("batched_transpose_32x64_pack_2x4_ediv_1x2_half", "transpose_CNHW2NCHW_V2_2D_WG_off64")
    assert len(findings("layout-transposes", step(10, names=names))) == 1


def test_it_stays_silent_just_below_the_threshold():
    assert findings("layout-transposes", step(1, of=40)) == []  # 2.5 %
    assert len(findings("layout-transposes", step(1, of=33))) == 1  # 3.03 %


@pytest.mark.parametrize(
    "name",
    [
        "volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1",
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4",
    ],
)
def test_it_stays_silent_where_the_convolution_itself_takes_the_layout(name):
    assert findings("layout-transposes", step(10, names=(name, name))) == []


def test_it_stays_silent_on_copies_that_the_program_asks_for():
    name = (
        "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
    )
    assert findings("layout-transposes", step(10, names=(name, name))) == []


def test_what_runs_beside_other_work_is_not_promised():
    """Half of the ten units lie beside a kernel on another stream."""
    beside = step(10, kernels=["G" * 30 + "ab" * 5, " " * 30 + "G" * 5 + " " * 5])
    assert only_finding("layout-transposes", beside).values["kernels_ms"] == pytest.approx(0.5)
