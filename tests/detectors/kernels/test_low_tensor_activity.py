"""low-tensor-activity: products in 16 bits that leave tensor cores idle, though nothing else is the reason."""

from __future__ import annotations

import pytest
from builders import draw_steps, findings, only_finding, summary
from counters_builder import sampled

MS = 1_000_000
NAMES = {
    "h": "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_nn",
    "p": "fused_linear_gemm_kernel(Params)",
    "c": "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x32x64_stage5",
    "m": "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_tn_align1",
    "w": "cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4",
}


def step(letter: str = "h", *, few: int = 10, of: int = 40, **shares: float):
    """Steps of `of` ms, of which `few` are a kernel with these shares."""
    drawn = draw_steps(kernels=letter * few + "e" * (of - few), kernel_names=NAMES, gpu="NVIDIA A100-SXM4-80GB")
    counted = {
        "tensor_active_share": 0.15,
        "sm_active_share": 0.9,
        "dram_read_share": 0.1,
        "dram_write_share": 0.1,
        **shares,
    }
    return sampled(drawn, {NAMES[letter]: counted})


def test_it_fires_where_neither_grid_nor_memory_keeps_tensor_cores_waiting():
    finding = only_finding(
        "low-tensor-activity",
        step(),
        saved_share_low=0.05,
        saved_share_likely=0.2,
        reached_share=0.8,
        reached_memory_share=0.9,
    )
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely) == (pytest.approx(0.5 * MS, rel=0.01), pytest.approx(2 * MS, rel=0.01))
    assert saving.high == pytest.approx(
        10 * MS * (1 - 0.2 / 0.9), rel=0.02
    )  # the memory's bytes take longer than 0.15 / 0.8
    assert "keep tensor cores busy for 15 % of that" in summary(finding)


def test_tensor_cores_prove_16_bits_where_the_name_says_no_type():
    assert len(findings("low-tensor-activity", step("p"))) == 1


def test_convolutions_have_fixes_of_their_own():
    assert only_finding("low-tensor-activity", step("c")).situation == "convolutions"


@pytest.mark.parametrize(
    "shares",
    [{"tensor_active_share": 0.27}, {"sm_active_share": 0.5}, {"dram_read_share": 0.55}],
    ids=["busy enough", "few SMs at work", "bound by the memory"],
)
def test_it_stays_silent_where_they_work_or_something_else_is_the_reason(shares):
    assert findings("low-tensor-activity", step(**shares)) == []


@pytest.mark.parametrize("letter", ["m", "w", "e"])
def test_what_another_rule_owns_is_not_claimed_twice(letter):
    """Misaligned products, products in TF32, and kernels that are no products."""
    drawn = draw_steps(kernels=letter * 10 + "G" * 10, kernel_names=NAMES, gpu="NVIDIA A100-SXM4-80GB")
    counted = {"tensor_active_share": 0.15, "sm_active_share": 0.9, "dram_read_share": 0.1, "dram_write_share": 0.1}
    rates = {NAMES.get(letter, "elementwise"): counted, "ldg8": {"tensor_active_share": 0.6}}
    assert findings("low-tensor-activity", sampled(drawn, rates)) == []


def test_it_stays_silent_just_below_a_twentieth_of_the_step():
    assert findings("low-tensor-activity", step(few=1, of=21)) == []
    assert len(findings("low-tensor-activity", step(few=1, of=19))) == 1
