"""How long a fused attention kernel takes: the published figures come out again, and between them lies between them."""

from __future__ import annotations

import pytest

from perfdoctor.hardware.attention import Attention, fused_attention
from perfdoctor.hardware.peaks import Peaks, peaks_of

A100, H100 = peaks_of("NVIDIA A100-SXM4-80GB", 108), peaks_of("NVIDIA H100 80GB HBM3", 132)
V100 = peaks_of("Tesla V100-SXM2-16GB", 80, 16 << 30)


def tflops(
    peaks: Peaks | None, case: str, *, size: int, length: int, causal: bool = False, backward: bool = False, bits=16
):
    """By the authors' count: 16,384 tokens, 2,048 numbers each."""
    assert peaks
    heads, batch = 2048 // size, 16384 // length
    work = Attention(heads * batch, length, length, size, backward, bits)
    found = fused_attention(work, peaks, case, causal=causal)
    assert found
    flop = 4 * batch * heads * length**2 * size * (2.5 if backward else 1) / (2 if causal else 1)
    return flop / found[0] / 1e12


@pytest.mark.parametrize(
    ("peaks", "case", "size", "length", "causal", "backward", "published"),
    [
        (A100, "likely", 64, 512, False, False, 132),
        (A100, "likely", 64, 16384, False, True, 176),
        (A100, "likely", 128, 16384, False, False, 203),
        (A100, "likely", 64, 1024, True, True, 119),
        (A100, "low", 64, 16384, False, False, 101),
        (H100, "likely", 64, 2048, False, False, 318),
        (H100, "likely", 128, 4096, False, True, 310),
        (H100, "high", 128, 8192, False, False, 646),
        (H100, "high", 64, 4096, True, False, 420),
    ],
)
def test_the_published_figures(peaks, case, size, length, causal, backward, published):
    rate = tflops(peaks, case, size=size, length=length, causal=causal, backward=backward)
    assert rate == pytest.approx(published, rel=0.06)


def test_between_two_lengths_the_time_for_each_pair_is_a_straight_line_in_one_over_the_length():
    """132 at 512 and 153 at 1,024: at 768 a third of the way in 1 / length from the longer one."""
    expected = 1 / (1 / 153 + (1 / 132 - 1 / 153) * (1 / 768 - 1 / 1024) / (1 / 512 - 1 / 1024))
    work = Attention(100, 768, 768, 64)
    assert fused_attention(work, A100, "likely", causal=False)[0] == pytest.approx(
        4 * 100 * 768**2 * 64 / (expected * 1e12), rel=1e-6
    )


def test_short_sequences_are_slower_for_each_pair_and_no_shorter_than_a_tile():
    long, short = (tflops(A100, "likely", size=64, length=length) for length in (512, 128))
    assert short < long
    tile, less = (fused_attention(Attention(1000, n, n, 64), A100, "likely", causal=False)[0] for n in (64, 8))
    assert less == tile


def test_a_head_smaller_than_any_that_was_measured_takes_as_long_as_the_smallest():
    small, smallest = (
        fused_attention(Attention(64, 1024, 1024, size), A100, "likely", causal=False)[0] for size in (32, 64)
    )
    assert small == smallest


def test_numbers_of_32_bits_take_several_times_as_long():
    half, wide = (tflops(A100, "likely", size=64, length=4096, bits=bits) for bits in (16, 32))
    assert wide == pytest.approx(26.8, rel=0.01)
    assert half / wide > 5


def test_the_slowest_kernel_is_the_least_and_the_fastest_the_most():
    for peaks in (A100, H100, V100):
        low, likely, high = (tflops(peaks, case, size=64, length=2048) for case in ("low", "likely", "high"))
        assert low <= likely <= high


def test_on_a_gpu_without_a_figure_it_is_as_near_to_the_peak_as_on_an_a100():
    other = peaks_of("NVIDIA A10", 72)
    share = other.half_flop_per_second / A100.half_flop_per_second
    assert tflops(other, "likely", size=64, length=2048) == pytest.approx(162 * share, rel=0.06)


def test_before_ampere_torch_has_the_memory_efficient_kernel_alone():
    assert tflops(V100, "likely", size=64, length=16384) == pytest.approx(101 * 125 / 312, rel=0.02)


def test_it_is_never_faster_than_its_bytes():
    """A single query over many keys reads those at the pace of the memory."""
    work = Attention(64 * 32, 1, 4096, 128)
    found = fused_attention(work, A100, "high", causal=False)
    assert found[0] >= work.moved_bytes / A100.memory_bytes_per_second


def test_without_a_peak_there_is_no_answer():
    assert fused_attention(Attention(1, 64, 64, 64), Peaks("", {}, 0.0, 0.0), "likely", causal=False) is None
