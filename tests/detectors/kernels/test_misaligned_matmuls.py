"""misaligned-matmuls: sizes that keep tensor cores from reading in whole pieces."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary, timeline
from counters_builder import sampled
from ncu_builders import with_ncu

from perfdoctor.metrics.kernels.matmul_sizes import padded, sizes
from perfdoctor.model.timeline import Device

MS = 1_000_000
BF16 = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align{}>(Params)"
TF32 = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x128_32x3_nt_align{}>(Params)"
SIMT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)"


def step(matmul: int, name: str, *, of: int = 40, **more):
    picture = {
        "kernels": "e" * (of - matmul) + "S" * matmul,
        "kernel_names": {"S": name},
        "launched_us_before": 50,
        "repeat": 6,
        "unit_us": 1000,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_a_kernel_was_built_for_misaligned_rows():
    finding = only_finding(
        "misaligned-matmuls",
        step(14, BF16.format(1)),
        aligned_speedup_low=1.1,
        aligned_speedup_likely=1.4,
        aligned_speedup_high=2.0,
    )
    assert (finding.values["misaligned_ms"], finding.values["misaligned_percent"]) == (14.0, pytest.approx(35.0))
    # 14 ms at 1.1, 1.4 and 2 times the rate
    saving = finding.saving_ns_per_step
    assert saving.low == pytest.approx(14 * MS * (1 - 1 / 1.1), abs=2)
    assert saving.likely == pytest.approx(4 * MS, abs=2)
    assert saving.high == pytest.approx(7 * MS, abs=2)
    assert (finding.situation, finding.confidence) == ("", "medium")
    assert "14.0 ms of a 40.0 ms step (35 %)" in summary(finding)


@pytest.mark.parametrize(
    "name",
    [
        BF16.format(8),  # 8 numbers of 16 bits are a whole piece
        TF32.format(4),  # 4 of 32 bits
        SIMT,  # reads one number at a time on any size
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna1_alignc1_execute",
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
    ],
)
def test_it_stays_silent_on_kernels_for_whole_pieces_and_on_those_without(name):
    assert findings("misaligned-matmuls", step(30, name)) == []


def test_it_stays_silent_just_below_the_threshold():
    assert findings("misaligned-matmuls", step(2, TF32.format(1), of=41)) == []  # 4.9 %
    assert len(findings("misaligned-matmuls", step(2, TF32.format(1), of=40))) == 1


def recorded(*ops: tuple[str, str, int], kernel: str = BF16.format(1), capability=(8, 0), gpu: str = ""):
    """Ops one behind the other, each launching one kernel of the given ms; one aligned kernel of 10 ms at the end."""
    kernels, calls, rows, at = [], [], [], 0
    for number, (op, shapes, duration_ms) in enumerate((*ops, ("aten::add", "", 10))):
        host = 100 * number
        name = kernel if op != "aten::add" else "some_kernel"
        end = at + duration_ms * MS
        kernels.append({"start_ns": at, "end_ns": end, "name": name, "correlation": number, "process": 1})
        calls.append(
            {
                "start_ns": host + 10,
                "end_ns": host + 20,
                "name": "cudaLaunchKernel",
                "correlation": number,
                "process": 1,
            }
        )
        rows.append({"start_ns": host, "end_ns": host + 50, "name": op, "input_shapes": shapes, "process": 1})
        at = end
    device = Device(0, 0, gpu, compute_capability=capability)
    return timeline(kernels=kernels, calls=calls, ops=rows, devices=[device])


def test_it_fires_with_the_size_that_costs_most_and_what_to_pad_it_to():
    """Padding 50,257 to 50,264 makes the arithmetic 0.014 % more."""
    finding = only_finding(
        "misaligned-matmuls",
        recorded(("aten::mm", "[[4096, 768], [768, 50257]]", 20), ("aten::addmm", "[[30], [64, 768], [768, 30]]", 10)),
        aligned_speedup_likely=1.4,
    )
    assert finding.situation == "sizes"
    assert [finding.values[name] for name in ("size", "padded", "piece")] == [50257, 50264, 8]
    assert "not multiples of 8: 50257 costs most; pad it to 50264" in summary(finding)
    by_hand = 20 * MS * (1 - (50264 / 50257) / 1.4) + 10 * MS * (1 - (32 / 30) / 1.4)
    assert finding.saving_ns_per_step.likely == pytest.approx(by_hand, rel=1e-6)
    assert finding.evidence[1].rows == (
        ("aten::mm", "4096 × 50257 × 768", "4096 × 50264 × 768", 1.0, 20 * MS),
        ("aten::addmm", "64 × 30 × 768", "64 × 32 × 768", 1.0, 10 * MS),
    )


def test_no_kernel_is_promised_to_get_faster_than_its_gpu():
    """2 · 40,960 · 768 · 50,257 FLOP take 10.13 ms of the 312 TFLOP/s of an A100: of 13 ms no more than 2.87 can go."""
    ops = ("aten::mm", "[[40960, 768], [768, 50257]]", 13)
    least_ns = 2 * 40960 * 768 * 50257 / 312e12 * 1e9
    finding = only_finding("misaligned-matmuls", recorded(ops, gpu="NVIDIA A100-SXM4-80GB"), aligned_speedup_likely=1.4)
    assert finding.saving_ns_per_step.likely == pytest.approx(13 * MS - least_ns, rel=1e-6)
    assert finding.saving_ns_per_step.high == finding.saving_ns_per_step.likely
    assert finding.saving_ns_per_step.low < finding.saving_ns_per_step.likely  # that far it can go
    unknown = only_finding("misaligned-matmuls", recorded(ops), aligned_speedup_likely=1.4)
    assert unknown.saving_ns_per_step.likely == pytest.approx(13 * MS * (1 - (50264 / 50257) / 1.4), rel=1e-6)


FP8 = "cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_128x128x128_1x2x1_0_tnt_align{}_warpspecialized"
INT8 = "void cutlass::Kernel2<cutlass_80_tensorop_i16832gemm_s8_128x64_128x3_tn_align{}>(Params)"
XMMA_FP8 = (
    "sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x64_stage3_warpsize2x2x1_tensor16x8x32_aligna{}_execute"
)
INT8_WEIGHTS = "cutlass_tensorop_f16_s16816gemm_f16_s8_128x128_32x4_tn_align{}"
WEIGHTS_FIRST = "cutlass_tensorop_f16_s16816gemm_s8_f16_128x128_32x4_tn_align{}"


@pytest.mark.parametrize("name", [FP8, INT8, XMMA_FP8])
def test_numbers_of_8_bits_come_in_pieces_of_16(name):
    assert findings("misaligned-matmuls", step(14, name.format(16))) == []
    assert len(findings("misaligned-matmuls", step(14, name.format(8)))) == 1


@pytest.mark.parametrize("name", [INT8_WEIGHTS, WEIGHTS_FIRST, BF16])
def test_numbers_of_16_bits_come_in_pieces_of_8_whatever_they_are_multiplied_by(name):
    assert findings("misaligned-matmuls", step(14, name.format(8))) == []


def test_a_size_of_8_bits_is_padded_to_16():
    """72 is a multiple of 8 and none of 16: 80 would be."""
    ops = ("aten::_int_mm", "[[4096, 72], [72, 4096]]", 20)
    finding = only_finding("misaligned-matmuls", recorded(ops, kernel=INT8.format(8)), paired_speedup_likely=1.4)
    assert [finding.values[name] for name in ("size", "padded", "piece")] == [72, 80, 16]
    assert finding.saving_ns_per_step.likely == pytest.approx(20 * MS * (1 - (80 / 72) / 1.4), rel=1e-6)


HALF_WITHOUT = "volta_fp16_sgemm_fp16_128x64_nn"
ODD, WHOLE = "[[4095, 767], [767, 4095]]", "[[4096, 768], [768, 4096]]"


def test_it_fires_where_sizes_keep_16_bits_off_tensor_cores():
    finding = only_finding(
        "misaligned-matmuls",
        recorded(("aten::mm", ODD, 20), kernel=HALF_WITHOUT, capability=(7, 0)),
        tensor_core_speedup_likely=2.0,
    )
    by_hand = 20 * MS * (1 - (4096 / 4095) ** 2 * (768 / 767) / 2)
    assert finding.saving_ns_per_step.likely == pytest.approx(by_hand, rel=1e-6)
    assert finding.values["size"] == 4095


@pytest.mark.parametrize(
    ("shapes", "kernel", "capability"),
    [
        (WHOLE, HALF_WITHOUT, (7, 0)),  # its sizes are not the reason
        ("", HALF_WITHOUT, (7, 0)),  # nobody knows
        (ODD, HALF_WITHOUT, (6, 0)),  # a GPU that has none
        (ODD, HALF_WITHOUT, (0, 0)),  # a GPU that nobody knows
        (ODD, "volta_sgemm_128x64_nn", (7, 0)),  # 32 bits: fp32-matmuls'
        (ODD, "void gemvNSP_kernel<__half, __half, __half, float, 1, 32, 4, 1024>(P)", (7, 0)),
    ],
)
def test_it_stays_silent_where_sizes_are_not_why_no_tensor_core_works(shapes, kernel, capability):
    assert (
        findings("misaligned-matmuls", recorded(("aten::mm", shapes, 20), kernel=kernel, capability=capability)) == []
    )


def test_tiny_sizes_are_promised_nothing():
    """13 padded to 16 is 23 % more arithmetic, 3 padded to 8 more than aligned kernels gain."""
    finding = only_finding("misaligned-matmuls", recorded(("aten::mm", "[[64, 3], [3, 64]]", 20)))
    assert (finding.saving_ns_per_step.low, finding.saving_ns_per_step.likely) == (0, 0)


def test_a_size_is_named_only_where_it_explains_most_of_the_time():
    ops = (("aten::mm", "[[64, 30], [30, 64]]", 2), ("CompiledFunction", "[[512, 2862]]", 20))
    assert only_finding("misaligned-matmuls", recorded(*ops)).situation == ""


def test_rows_that_begin_anywhere_for_another_reason_are_not_put_down_to_a_size():
    """A slice: its sizes are whole, its start is not."""
    assert only_finding("misaligned-matmuls", recorded(("aten::mm", "[[64, 64], [64, 64]]", 20))).situation == ""


def test_sizes_are_read_from_the_shapes_of_each_op():
    assert sizes("aten::mm", "[[4096, 768], [768, 50257]]") == (4096, 50257, 768)
    assert sizes("aten::addmm", "[[96], [1024, 512], [512, 96], [], []]") == (1024, 96, 512)
    assert sizes("aten::bmm", "[[8, 128, 64], [8, 64, 100]]") == (128, 100, 64)
    assert sizes("aten::baddbmm", "[[8, 128, 100], [8, 128, 64], [8, 64, 100]]") == (128, 100, 64)
    assert sizes("aten::cudnn_convolution", "[[32, 3, 224, 224], [64, 3, 7, 7], []]") == (3, 64)
    assert sizes("aten::convolution_backward", "[[32, 64, 9, 9], [32, 3, 9, 9], [64, 3, 7, 7]]") == (3, 64)
    assert sizes("aten::mm", "") == sizes("aten::mm", "[[], []]") == sizes("aten::mm", "null") == ()


def test_the_next_multiple():
    assert [padded(size, 8) for size in (1, 8, 50257)] == [8, 8, 50264]


def test_tensor_cores_that_were_seen_at_work_count_more_than_a_name():
    odd = recorded(("aten::mm", ODD, 20), kernel=HALF_WITHOUT, capability=(7, 0))
    profile = {"name": HALF_WITHOUT, "blocks": -1, "threads_per_block": -1, "gpu_time_ns": 20 * MS}
    assert findings("misaligned-matmuls", with_ncu(odd, [{**profile, "tensor_share": 0.3}])) == []
    finding = only_finding("misaligned-matmuls", with_ncu(odd, [{**profile, "tensor_share": 0.0}]))
    assert [each.value for each in finding.evidence if "tensor cores" in each.label] == [0.0]


UNKNOWN_PATH = "nvjet_hsh_64x8_64x16_4x1_v_bz_TNN"


def test_products_of_16_bits_are_off_tensor_cores_where_the_gpus_counters_saw_nothing_on_them():
    odd = recorded(("aten::mm", ODD, 20), kernel=UNKNOWN_PATH, capability=(8, 0))
    (finding,) = findings("misaligned-matmuls", sampled(odd, {"nvjet": {"tensor_active_share": 0.0}}))
    assert finding.values["size"] == 4095
    assert findings("misaligned-matmuls", sampled(odd, {"nvjet": {"tensor_active_share": 0.3}})) == []
    assert findings("misaligned-matmuls", odd) == []


def test_the_gpus_counters_count_more_than_a_name():
    odd = recorded(("aten::mm", ODD, 20), kernel=HALF_WITHOUT, capability=(7, 0))
    assert findings("misaligned-matmuls", sampled(odd, {"sgemm": {"tensor_active_share": 0.3}})) == []


def test_pairs_of_numbers_lose_less_than_single_ones():
    single, pairs = (only_finding("misaligned-matmuls", step(14, BF16.format(size))) for size in (1, 2))
    assert 0 < pairs.saving_ns_per_step.likely < single.saving_ns_per_step.likely


def test_on_hopper_aligned_kernels_have_faster_instructions():
    """1.4 times as fast for the loads, and mma reaches 62.9 % of what wgmma does."""
    finding = only_finding(
        "misaligned-matmuls",
        recorded(("aten::mm", "", 14), capability=(9, 0)),
        aligned_speedup_likely=1.4,
        plain_instructions_share=0.629,
    )
    assert finding.saving_ns_per_step.likely == pytest.approx(14 * MS * (1 - 0.629 / 1.4), rel=1e-6)


def test_aligned_matmuls_of_the_recording_say_more_than_those_of_other_machines():
    """An aligned product of as many FLOP takes twice its roof: padded, the misaligned one does as well, not 1.4 times less."""
    roof_ns = 2 * 4096 * 8192 * 50264 / 312e12 * 1e9
    ops = [("aten::mm", "[[4096, 8192], [8192, 50264]]", round(2 * roof_ns)),
           ("aten::mm", "[[4096, 8192], [8192, 50257]]", round(6 * roof_ns))]  # fmt: skip
    kernels, calls, rows, at = [], [], [], 0
    for number, (op, shapes, ns) in enumerate(ops):
        name = BF16.format((8, 1)[number])
        common = {"correlation": number, "process": 1}
        kernels.append({"start_ns": at, "end_ns": at + ns, "name": name, **common})
        calls.append({"start_ns": 100 * number + 10, "end_ns": 100 * number + 20, "name": "cudaLaunchKernel", **common})
        rows.append({"start_ns": 100 * number, "end_ns": 100 * number + 50, "name": op, "input_shapes": shapes,
                     "input_types": '["c10::BFloat16", "c10::BFloat16"]', "process": 1})  # fmt: skip
        at += ns
    device = Device(0, 0, "NVIDIA A100-SXM4-80GB", compute_capability=(8, 0))
    drawn = timeline(kernels=kernels, calls=calls, ops=rows, devices=[device])
    finding = only_finding("misaligned-matmuls", drawn, aligned_speedup_likely=1.4)
    assert finding.saving_ns_per_step.likely == pytest.approx(4 * roof_ns, rel=0.001)
    assert finding.saving_ns_per_step.low == pytest.approx(6 * roof_ns * (1 - 1 / 1.1), rel=0.01)


def test_products_of_an_attention_are_a_symptom_of_its_not_being_fused():
    softmax = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)"
    attention = step(0, BF16.format(1), kernels="SssS" + "e" * 6, kernel_names={"S": BF16.format(1), "s": softmax})
    assert only_finding("misaligned-matmuls", attention).symptom_of == ("unfused-attention",)
    assert only_finding("misaligned-matmuls", step(10, BF16.format(1))).symptom_of == ()


def test_busier_tensor_cores_of_aligned_matmuls_say_what_padding_brings():
    """Ten of 30 ms keep tensor cores at a tenth, aligned ones of that length at six tenths: a sixth of the time is left."""
    drawn = step(10, BF16.format(1), kernels="S" * 10 + "G" * 10 + "e" * 10)
    rates = {"align1": {"tensor_active_share": 0.1, "dram_read_share": 0.1, "dram_write_share": 0.0},
             "ldg8": {"tensor_active_share": 0.6}}  # fmt: skip
    finding = only_finding("misaligned-matmuls", sampled(drawn, rates))
    assert finding.saving_ns_per_step.likely == pytest.approx(10 * MS * 5 / 6, rel=0.02)
    rates["align1"]["dram_read_share"] = 0.5  # what it moves takes half of the time in any case
    finding = only_finding("misaligned-matmuls", sampled(drawn, rates))
    assert finding.saving_ns_per_step.likely == pytest.approx(10 * MS / 2, rel=0.02)
