"""fp32-matmuls: matrix math on 32- or 64-bit inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import SGEMM, draw, draw_steps, findings, of_step, only_finding, summary, timeline
from measured_builders import H100, matmuls, with_rates
from ncu_builders import NAN, steps, with_ncu

from perfdoctor.model.timeline import Device

MS = 1_000_000
BELOW_PEAKS = {"fp32_to_half_speedup_low": 1.25, "fp32_to_half_speedup_likely": 2.0, "fp32_to_half_speedup_high": 4.0}


def step(matmul: int, char: str = "S", *, of: int = 40, **more):
    """A step that computes all the time, `matmul` units of it in one matrix multiplication."""
    return draw(
        **{
            "kernels": "e" * (of - matmul) + char * matmul,
            "launched_us_before": 50,
            "repeat": 6,
            "unit_us": 1000,
            **more,
        }
    )


def test_it_fires_where_matmuls_read_32_bits():
    finding = only_finding("fp32-matmuls", step(20), **BELOW_PEAKS)
    assert finding.values == {**of_step("matmul", 20.0, 40.0), "tf32_percent": 0.0}
    # 20 ms at 1.25, 2 and 4 times the rate
    saving = finding.saving_ns_per_step
    assert [saving.low, saving.likely, saving.high] == [4 * MS, 10 * MS, 15 * MS]
    assert finding.situation == "fp32"
    assert "20.0 ms of a 40.0 ms step (50 %)" in summary(finding)


def test_a_kernel_at_the_pace_of_its_memory_gets_no_more_than_twice_as_fast():
    """A thin product streams 4,096² floats, 67.2 MB: 43.2 µs of an A100's 1,555 GB/s, and half of it in 16 bits."""
    common = {"correlation": 1, "process": 1}
    shapes = {"input_shapes": "[[8, 4096], [4096, 4096]]", "input_types": '["float", "float"]'}
    thin = timeline(
        kernels=[{**common, "name": SGEMM, "start_ns": 1000, "end_ns": 51_000}],
        calls=[{**common, "name": "cudaLaunchKernel", "start_ns": 100, "end_ns": 200}],
        ops=[{**shapes, "name": "aten::mm", "process": 1, "start_ns": 50, "end_ns": 300}],
        devices=[Device(0, 0, "NVIDIA A100-SXM4-40GB")],
    )
    saving = only_finding("fp32-matmuls", thin, **BELOW_PEAKS).saving_ns_per_step
    least_ns = (4096 * 4096 + 2 * 8 * 4096) * 2 / 1555e9 * 1e9
    assert saving.low == 10_000
    assert saving.likely == 25_000  # 50 µs at twice the rate: that is above what the bytes take
    assert saving.high == pytest.approx(50_000 - least_ns, abs=1)
    without = replace(thin, devices=())
    assert only_finding("fp32-matmuls", without, **BELOW_PEAKS).saving_ns_per_step.high == 37_500


def test_it_fires_on_tf32_with_the_smaller_gain():
    finding = only_finding(
        "fp32-matmuls",
        step(20, "T"),
        tf32_to_half_speedup_low=1.25,
        tf32_to_half_speedup_likely=1.6,
        tf32_to_half_speedup_high=2.0,
    )
    assert finding.situation == "tf32"
    assert finding.values["tf32_percent"] == 100.0
    # 20 ms at 1.6 times the rate are 12.5 ms
    assert finding.saving_ns_per_step.likely == pytest.approx(7.5 * MS, rel=1e-6)
    assert "100 % of them in TF32" in summary(finding)


def test_double_precision_counts_as_well():
    finding = only_finding("fp32-matmuls", step(20, "D"))
    assert finding.values["matmul_ms"] == 20.0


@pytest.mark.parametrize(
    "name",
    [
        "maxwell_scudnn_128x64_relu_interior_nn_v1",
        "void convolveNd_dgrad_float_engine<float, 3, 512, 6, 5, 3, 3, 3, false>(int)",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
    ],
)
def test_convolutions_and_attention_on_32_bits_count_as_well(name):
    assert only_finding("fp32-matmuls", step(20, kernel_names={"S": name})).values["matmul_ms"] == 20.0


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
        "nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_NNT",
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
        "void cutlass::device_kernel<cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64>(P)",
        "void xmma_cudnn::implicit_gemm::dgrad::kernel<xmma_cudnn::Ampere_hmma_fp32_traits<cutlass::half_t, float>>(P)",
        "triton_mm",
        "triton_tem_fused_mm_2",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>(Params)",
        "void fbgemm_gpu::permute_2D_lengths_kernel<float>(int)",
        "nvjet_sm100_tst_64x32_64x16_2x1_2cta_v_bz_TNT",
        "nvjet_sm90_hss_320x128_64x3_1x2_h_bz_coopB_NNT",
    ],
)
def test_it_stays_silent_where_the_name_does_not_prove_32_bits(name):
    assert findings("fp32-matmuls", step(40, kernel_names={"S": name})) == []


@pytest.mark.parametrize(
    "name",
    [
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(cublasGemvParamsEx)",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(P)",
    ],
)
def test_it_stays_silent_where_no_tensor_core_would_help(name):
    """A product with a vector and a channel by itself are bound by memory in any type."""
    assert findings("fp32-matmuls", step(40, kernel_names={"S": name})) == []


def test_it_stays_silent_just_below_the_threshold():
    # at twice the rate half of them is saved: 2 of 40 units save 2.5 %, 2 of 33 save 3.03 %
    assert findings("fp32-matmuls", step(2, of=40), fp32_to_half_speedup_likely=2.0) == []
    assert len(findings("fp32-matmuls", step(2, of=33), fp32_to_half_speedup_likely=2.0)) == 1


def test_it_promises_no_more_than_the_gpus_peaks_allow():
    """An A100 does 312 TFLOP/s in 16 bits and 156 in TF32: at most twice as fast."""
    finding = only_finding("fp32-matmuls", step(20, "T", gpu="NVIDIA A100-SXM4-40GB"), tf32_to_half_speedup_high=5.0)
    assert finding.saving_ns_per_step.high == pytest.approx(10 * MS, rel=1e-6)


@pytest.mark.parametrize(
    ("gpu", "situation"),
    [("Tesla V100-SXM2-16GB", "fp32-before-ampere"), ("NVIDIA A100-SXM4-40GB", "fp32"), ("a GPU nobody knows", "fp32")],
)
def test_a_gpu_without_tf32_and_bfloat16_gets_other_advice(gpu, situation):
    assert only_finding("fp32-matmuls", step(20, gpu=gpu)).situation == situation


def test_matmuls_beside_other_kernels_save_less_than_they_last():
    """Two streams compute at once: 40 ms of kernels in 20 ms of time."""
    picture = draw_steps(kernels=["S" * 20, "e" * 20])
    finding = only_finding("fp32-matmuls", picture, **BELOW_PEAKS)
    assert finding.saving_ns_per_step.likely == 5 * MS


def test_matmuls_beside_each_other_are_no_more_than_the_whole_step():
    picture = draw_steps(kernels=["S" * 20, "S" * 20])
    assert only_finding("fp32-matmuls", picture).values["matmul_percent"] == 100.0


def test_its_table_names_the_largest_kernels_first():
    picture = draw_steps(kernels="SSSSSDDDDDDDDDDe")
    table = only_finding("fp32-matmuls", picture).evidence[1]
    assert table.rows == (("volta_dgemm_64x64_nn", 1.0, 10 * MS), ("ampere_sgemm_128x64_tn", 1.0, 5 * MS))


# What Nsight Compute measured of them


def measured(tensor_share: float):
    """20 of 40 ms are a product that reads 32 bits by its name."""
    drawn = steps({"name": SGEMM, "ns": 20 * MS}, {"name": "some_kernel", "ns": 20 * MS})
    return with_ncu(drawn, [{"name": SGEMM, "tensor_share": tensor_share, "gpu_time_ns": 20 * MS}])


GAINS = {"tf32_to_half_speedup_likely": 1.6, "fp32_to_half_speedup_likely": 4.0}


def test_tensor_cores_that_were_seen_at_work_prove_tf32():
    """They take no plain fp32: 20 ms get 1.6 times as fast, not four times."""
    finding = only_finding("fp32-matmuls", measured(0.4), **GAINS)
    assert (finding.situation, finding.values["tf32_percent"]) == ("tf32", 100)
    assert finding.saving_ns_per_step.likely == pytest.approx(20 * MS * (1 - 1 / 1.6), rel=1e-6)
    assert ("tensor cores at work in them, by Nsight Compute", 0.4) in [
        (each.label, getattr(each, "value", 0)) for each in finding.evidence
    ]


@pytest.mark.parametrize("share", [0.0, 0.012, 0.049, NAN])
def test_what_other_arithmetic_shows_on_that_pipe_proves_nothing(share):
    finding = only_finding("fp32-matmuls", measured(share), **GAINS)
    assert finding.situation == "fp32"
    assert finding.saving_ns_per_step.likely == pytest.approx(20 * MS * (1 - 1 / 4), rel=1e-6)
    shown = [each.value for each in finding.evidence if "tensor cores" in each.label]
    assert shown == ([] if np.isnan(share) else [share])


def test_a_kernel_on_64_bits_is_no_tf32_for_all_its_tensor_cores():
    name = "ampere_dgemm_128x64_tn"
    drawn = steps({"name": name, "ns": 20 * MS}, {"name": "some_kernel", "ns": 20 * MS})
    found = with_ncu(drawn, [{"name": name, "tensor_share": 0.8, "gpu_time_ns": 20 * MS}])
    assert only_finding("fp32-matmuls", found, **GAINS).situation == "fp32"


# --- where the machine was measured ---


def product(*measurements, name: str = SGEMM, size: int = 8192):
    """One product of `size`³, whose kernel takes 50 ms."""
    common = {"correlation": 1, "process": 1}
    shapes = {"input_shapes": f"[[{size}, {size}], [{size}, {size}]]", "input_types": '["float", "float"]'}
    recorded = timeline(
        kernels=[{**common, "name": name, "start_ns": 1000, "end_ns": 50 * MS + 1000}],
        calls=[{**common, "name": "cudaLaunchKernel", "start_ns": 100, "end_ns": 200}],
        ops=[{**shapes, "name": "aten::mm", "process": 1, "start_ns": 50, "end_ns": 300}],
        devices=[Device(0, 0, H100)],
    )
    return with_rates(recorded, *measurements) if measurements else recorded


def saving(drawn):
    found = only_finding("fp32-matmuls", drawn, **BELOW_PEAKS).saving_ns_per_step
    return [found.low, found.likely, found.high]


def test_a_product_of_known_size_gets_as_much_faster_as_measured():
    """Ten times at this size. At least what is assumed at least, at most what is assumed or measured."""
    assert saving(product()) == [10 * MS, 25 * MS, 37.5 * MS]
    assert saving(product(*matmuls(bf16={8192: 500e12}, fp32={8192: 50e12}))) == [10 * MS, 45 * MS, 45 * MS]
    assert saving(product(*matmuls(bf16={8192: 125e12}, fp32={8192: 50e12}))) == [10 * MS, 30 * MS, 37.5 * MS]


def test_where_16_bits_were_hardly_faster_little_is_saved():
    assert saving(product(*matmuls(bf16={8192: 55e12}, fp32={8192: 50e12})))[:2] == [
        pytest.approx(50 * MS * (1 - 50 / 55), abs=1), pytest.approx(50 * MS * (1 - 50 / 55), abs=1),
    ]  # fmt: skip


def test_no_kernel_gets_faster_than_its_flop_at_the_rate_that_was_reached():
    """2 · 16384³ FLOP take 44 ms at 200 TFLOP/s, whatever the ratio of the rates is."""
    measured_so = matmuls(bf16={8192: 200e12}, fp16={8192: 190e12}, fp32={8192: 20e12})
    low, likely, high = saving(product(*measured_so, size=16384))
    least_ns, best_ns = (2 * 16384**3 / rate * 1e9 for rate in (200e12, 989.4e12))
    assert low == likely == pytest.approx(50 * MS - least_ns, abs=2)
    assert high == pytest.approx(50 * MS - best_ns, rel=1e-3)


def test_kernels_of_unknown_size_get_what_is_assumed():
    drawn = with_rates(step(20, gpu=H100), *matmuls(bf16={8192: 500e12}, fp32={8192: 50e12}))
    assert only_finding("fp32-matmuls", drawn, **BELOW_PEAKS).saving_ns_per_step.likely == 10 * MS
