"""What would a product take in 16 bits? By FLOP, bytes and start, each worked out by hand."""

from __future__ import annotations

import statistics

import pytest
from builders import SGEMM, TF32_GEMM, only_place, timeline
from measured_builders import matmuls, measurement, with_rates

from perfdoctor.hardware.peaks import half_speedups, named, short_names
from perfdoctor.metrics.work.half_precision import ReachedRates, half_ns, sizes
from perfdoctor.model.timeline import Device

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
MS = 1_000_000
REACHED = ReachedRates(half=0.7, tf32=0.75, wide=0.9, memory=0.85, memory_of_products=0.5)
START_NS = 2_000


def product(ns, first=(), second=(), *measurements, op="aten::mm", name=SGEMM, gpu=A100, blocks=-1):
    """One kernel of so many ns, launched by an op on these two matrices; no op where they are not given."""
    common = {"correlation": 1, "process": 1}
    shapes = {"input_shapes": f"[{list(first)}, {list(second)}]", "input_types": '["float", "float"]'}
    recorded = timeline(
        kernels=[{**common, "name": name, "start_ns": 1_000, "end_ns": 1_000 + ns, "blocks": blocks}],
        calls=[{**common, "name": "cudaLaunchKernel", "start_ns": 100, "end_ns": 200}],
        ops=[{**shapes, "name": op, "process": 1, "start_ns": 50, "end_ns": 300}] if first else [],
        devices=[Device(0, 0, gpu)] if gpu else [],
    )
    return only_place(with_rates(recorded, *measurements, device=gpu) if measurements else recorded)


def half(place, case="likely"):
    (ns,) = half_ns(place, REACHED, case)
    return ns


def test_a_large_product_takes_its_flop_at_the_share_of_the_peak_that_is_reached():
    """8192³ are 4,096 tiles of 128 × 128, in 38 waves of 108 SMs, the last of which is nearly full."""
    waves = 4096 / 108
    computing = 2 * 8192**3 / (312e12 * 0.7) * 38 / waves
    place = product(64 * MS, (8192, 8192), (8192, 8192))
    assert half(place) == pytest.approx(START_NS + computing * 1e9)


def test_a_thin_product_takes_its_bytes():
    """Eight rows times 4096²: half of 67 MB."""
    moved = 2 * (8 * 4096 + 4096 * 4096 + 8 * 4096)
    place = product(100_000, (8, 4096), (4096, 4096))
    assert half(place) == pytest.approx(START_NS + moved / (2.039e12 * 0.5) * 1e9)


def test_nothing_takes_longer_than_before():
    assert half(product(1_500, (64, 64), (64, 64))) == 1_500


def test_few_tiles_leave_sms_without_work():
    """512 × 256 results over 128 numbers: eight tiles of 128², or sixteen of 128 × 64 at two thirds of the rate, or 32
    of 64² at half of it: the last is the best, on 32 of 108 SMs."""
    computing = 2 * 512 * 256 * 128 / (312e12 * 0.7 * 0.5 * 32 / 108)
    assert half(product(40_000, (512, 128), (128, 256))) == pytest.approx(START_NS + computing * 1e9)


def test_a_long_sum_is_divided_among_sms_that_have_no_tile():
    """The same results over 2048 numbers: in four parts at most, and as many as there are SMs for. 32 tiles of 64² in three
    parts each keep 96 of 108 at work.
    """
    computing = 2 * 512 * 256 * 2048 / (312e12 * 0.7 * 0.5 * 96 / 108)
    assert half(product(MS, (512, 2048), (2048, 256))) == pytest.approx(START_NS + computing * 1e9)


def test_without_shapes_a_kernels_own_time_says_its_flop():
    """10 ms at nine tenths of 19.5 TFLOP/s; 1,080 blocks of 128 × 64 are ten whole waves."""
    place = product(10 * MS, blocks=1_080)
    flop = 10e-3 * 19.5e12 * 0.9
    found = sizes(place, REACHED)
    assert found.flop.tolist() == pytest.approx([flop])
    assert found.results.tolist() == [1_080 * 128 * 64]
    tiles = 1_080 * 128 * 64 / 128**2
    computing = flop / (312e12 * 0.7) * 5 / (tiles / 108)
    assert half(place) == pytest.approx(START_NS + computing * 1e9)


def test_blocks_for_a_part_of_the_sms_compute_so_much_less():
    """54 blocks keep half of the SMs at work."""
    assert sizes(product(MS, blocks=54), REACHED).flop.tolist() == pytest.approx([1e-3 * 19.5e12 * 0.9 / 2])


def test_tf32_runs_at_its_own_rate():
    place = product(10 * MS, name=TF32_GEMM)
    assert sizes(place, REACHED).flop.tolist() == pytest.approx([10e-3 * 156e12 * 0.75])
    assert half(place) == pytest.approx(10 * MS * (156 * 0.75) / (312 * 0.7), rel=0.02)


def test_what_the_machine_reached_counts_more_than_the_data_sheet():
    """Twelve times the rate of fp32 at this size, and 1.6 TB/s."""
    rates = [*matmuls(bf16={8192: 216e12}, fp32={8192: 18e12}), measurement("memory_copy", 1.6e12)]
    place = product(60 * MS, (8192, 8192), (8192, 8192), *rates)
    assert half(place) == pytest.approx(START_NS + 60 * MS / 12)
    thin = product(100_000, (8, 4096), (4096, 4096), *rates)
    assert half(thin) >= 2 * (8 * 4096 + 4096 * 4096 + 8 * 4096) / 1.6e12 * 1e9


def test_of_a_gpu_that_is_not_known_the_middle_of_all_is_taken():
    ratios = []
    for name in short_names().values():
        peaks, _ = named(name)
        if peaks and peaks.half_flop_per_second and peaks.fp32_flop_per_second:
            ratios.append(peaks.half_flop_per_second / peaks.fp32_flop_per_second)
    assert half_speedups("fp32")["likely"] == pytest.approx(statistics.median(ratios), rel=0.2)
    assert list(half_speedups("tf32").values()) == pytest.approx([2, 2, 2], rel=0.02)
    for case, ratio in half_speedups("fp32").items():
        assert half(product(10 * MS, gpu=""), case) == pytest.approx(10 * MS / ratio)
