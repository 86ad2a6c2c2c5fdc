"""fp32-matmuls: matrix math on 32- or 64-bit inputs."""

from __future__ import annotations

import numpy as np
import pytest
from builders import SGEMM, draw, draw_steps, findings, of_step, only_finding, summary
from counters_builder import sampled
from msgspec.structs import replace
from ncu_builders import NAN, steps, with_ncu

MS = 1_000_000
A100 = "NVIDIA A100-SXM4-80GB"
#: Of an A100: what large sgemms and products in 16 bits reach, and the memory; a start of a kernel.
FP32, TF32, HALF, MEMORY, START_NS = 0.85 * 19.5e12, 0.7 * 1.08 * 156e12, 0.7 * 312e12, 0.85 * 2.039e12, 2_000


def in_16_bits(ns: float, rate: float = FP32) -> float:
    """A square product that takes so long at this rate, and casts of its weight; in the first of five steps of both
    factors: before it, everything is in fp32.
    """
    side = np.cbrt(ns * 1e-9 * rate / 2)
    waves = np.ceil(side**2 / 128**2) / 108
    computing = ns * rate / HALF * np.ceil(waves) / waves
    casting = 1.2 * START_NS + 1.2 * side**2 * 6 / MEMORY * 1e9
    return START_NS + computing + casting


def step(matmul: int, char: str = "S", *, of: int = 40, **more):
    """A step that computes all the time, `matmul` units of it in one matrix multiplication."""
    return draw(
        **{
            "kernels": "#" * (of - matmul) + char * matmul,
            "launched_us_before": 50,
            "repeat": 6,
            "unit_us": 1000,
            "gpu": A100,
            **more,
        }
    )


def test_it_fires_where_matmuls_read_32_bits():
    finding = only_finding("fp32-matmuls", step(20))
    host = {"casts": 1.2, "cast_ms": pytest.approx(1.2 * 4e-3)}  # four times a launch of 1 µs
    derived = {"changed_ms": 20.0, "half_tflop_per_second": 312.0, "memory_gb_per_second": 2039.0}
    assert finding.values == {
        **of_step("matmul", 20.0, 40.0),
        "tf32_percent": 0.0,
        **host,
        **{name: pytest.approx(value) for name, value in derived.items()},
    }
    saving = finding.saving_ns_per_step
    assert saving.likely == pytest.approx(20 * MS - in_16_bits(20 * MS), rel=1e-4)
    assert saving.low < saving.likely < saving.high < 20 * MS
    assert finding.situation == "fp32"
    assert "20.0 ms of a 40.0 ms step (50 %)" in summary(finding)


def test_tf32_gains_about_half():
    finding = only_finding("fp32-matmuls", step(20, "T"))
    assert finding.situation == "tf32"
    assert finding.values["tf32_percent"] == 100.0
    assert finding.saving_ns_per_step.likely == pytest.approx(20 * MS - in_16_bits(20 * MS, TF32), rel=1e-4)
    assert finding.saving_ns_per_step.high <= 10 * MS
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
    share = (10 * MS - in_16_bits(10 * MS)) / (40 * MS)
    for least, count in ((share + 0.001, 0), (share - 0.001, 1)):
        assert len(findings("fp32-matmuls", step(10), min_share_of_step=least)) == count


def test_of_a_gpu_that_is_not_known_the_saving_is_less_sure():
    finding, known = only_finding("fp32-matmuls", step(20, gpu="")), only_finding("fp32-matmuls", step(20))
    assert (finding.confidence, known.confidence) == ("low", "medium")
    assert finding.saving_ns_per_step.low < known.saving_ns_per_step.low


@pytest.mark.parametrize(
    ("gpu", "situation"),
    [("Tesla V100-SXM2-16GB", "fp32-before-ampere"), ("NVIDIA A100-SXM4-40GB", "fp32"), ("a GPU nobody knows", "fp32")],
)
def test_a_gpu_without_tf32_and_bfloat16_gets_other_advice(gpu, situation):
    assert only_finding("fp32-matmuls", step(20, gpu=gpu)).situation == situation


def test_matmuls_beside_other_kernels_save_less_than_they_last():
    """Two streams compute at once: 40 ms of kernels in 20 ms of time."""
    picture = draw_steps(kernels=["S" * 20, "#" * 20], gpu=A100)
    finding = only_finding("fp32-matmuls", picture)
    assert finding.saving_ns_per_step.likely == pytest.approx((20 * MS - in_16_bits(20 * MS)) / 2, rel=0.01)


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


def test_tensor_cores_that_were_seen_at_work_prove_tf32():
    """They take no plain fp32: 20 ms get twice as fast at most."""
    finding = only_finding("fp32-matmuls", measured(0.4))
    assert (finding.situation, finding.values["tf32_percent"]) == ("tf32", 100)
    assert finding.saving_ns_per_step.likely == pytest.approx(10 * MS, rel=0.02)  # of no GPU in particular
    assert ("tensor cores at work in them, by Nsight Compute", 0.4) in [
        (each.label, getattr(each, "value", 0)) for each in finding.evidence
    ]


def counted(tensor_active_share: float):
    """Steps of 20 ms, half of them a product that reads 32 bits by its name, with the GPU's counters beside them."""
    return sampled(draw_steps(kernels="S" * 10 + "e" * 10), {"sgemm": {"tensor_active_share": tensor_active_share}})


def test_the_gpus_counters_prove_tf32_too():
    finding = only_finding("fp32-matmuls", counted(0.4))
    assert (finding.situation, finding.values["tf32_percent"]) == ("tf32", 100)
    (measure,) = [each for each in finding.evidence if "by the GPU's counters" in each.label]
    assert measure.value == pytest.approx(0.4, abs=0.005)


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_counters_that_saw_next_to_nothing_say_so_and_prove_no_tf32(share):
    finding = only_finding("fp32-matmuls", counted(share))
    assert finding.situation == "fp32"
    (measure,) = [each for each in finding.evidence if "by the GPU's counters" in each.label]
    assert measure.value == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize("share", [0.0, 0.012, 0.049, NAN])
def test_what_other_arithmetic_shows_on_that_pipe_proves_nothing(share):
    finding = only_finding("fp32-matmuls", measured(share))
    assert finding.situation == "fp32"
    assert finding.saving_ns_per_step.likely == 15 * MS
    shown = [each.value for each in finding.evidence if "tensor cores" in each.label]
    assert shown == ([] if np.isnan(share) else [share])


def test_a_kernel_on_64_bits_is_no_tf32_for_all_its_tensor_cores():
    name = "ampere_dgemm_128x64_tn"
    drawn = steps({"name": name, "ns": 20 * MS}, {"name": "some_kernel", "ns": 20 * MS})
    found = with_ncu(drawn, [{"name": name, "tensor_share": 0.8, "gpu_time_ns": 20 * MS}])
    assert only_finding("fp32-matmuls", found).situation == "fp32"


PLAIN = "fused_linear_gemm_kernel(Params)"


def without_a_type(*, tensor: float = 0.0, issue: float = 0.7, dram: float = 0.2, capability: tuple[int, int] = (8, 0)):
    """Half of each step is a product whose name tells no type, with the GPU's counters beside it."""
    drawn = draw_steps(kernels="p" * 10 + "G" * 10, kernel_names={"p": PLAIN}, gpu="NVIDIA A100-SXM4-80GB")
    drawn = replace(drawn, devices=(replace(drawn.devices[0], compute_capability=capability),))
    rates = {"tensor_active_share": tensor, "sm_issue_share": issue, "dram_read_share": dram, "dram_write_share": 0.0}
    return sampled(drawn, {"fused_linear": rates, "s16816": {"tensor_active_share": 0.6, "sm_issue_share": 0.3}})


def test_a_product_off_tensor_cores_reads_32_bits_whatever_its_name():
    finding = only_finding("fp32-matmuls", without_a_type())
    assert finding.values["matmul_percent"] == pytest.approx(50, abs=0.1)
    assert finding.saving_ns_per_step.likely > 7 * MS


@pytest.mark.parametrize(
    "counters",
    [{"tensor": 0.3}, {"issue": 0.2}, {"dram": 0.8}, {"capability": (6, 0)}],
    ids=["on tensor cores", "hardly computing", "bound by the memory", "no tensor cores in the GPU"],
)
def test_what_else_uses_no_tensor_cores_proves_no_type(counters):
    assert findings("fp32-matmuls", without_a_type(**counters)) == []
