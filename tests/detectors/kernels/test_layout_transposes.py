"""layout-transposes: channels to the back and to the front, around convolutions."""

from __future__ import annotations

import pytest
from builders import findings
from kernel_kind_cases import LAYOUT


def test_it_fires_on_an_amd_gpu():
    names = ("batched_transpose_32x64_pack_2x4_ediv_1x2_half", "transpose_CNHW2NCHW_V2_2D_WG_off64")
    assert len(findings("layout-transposes", LAYOUT.step(10, names=names))) == 1


@pytest.mark.parametrize(
    "name",
    [
        "volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1",
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4",
    ],
)
def test_it_stays_silent_where_the_convolution_itself_takes_the_layout(name):
    assert findings("layout-transposes", LAYOUT.step(10, names=(name, name))) == []


def test_it_stays_silent_on_copies_that_the_program_asks_for():
    name = (
        "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
    )
    assert findings("layout-transposes", LAYOUT.step(10, names=(name, name))) == []
