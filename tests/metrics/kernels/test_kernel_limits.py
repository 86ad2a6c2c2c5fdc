"""Which limit holds a measured kernel, and how far is it from the roof that its report holds?"""

from __future__ import annotations

import math

import pytest
from folders import public
from ncu_builders import MS, NAN, alone
from ncu_tables import RAW, wide

from perfdoctor.metrics.kernels.kernel_limits import measured_kernels, sections_missing
from perfdoctor.readers.ncu.report_file import read_launches
from perfdoctor.readers.open import read
from perfdoctor.vocabulary.kinds import KERNEL_LIMITS, stall_label

#: Nothing is busy, and nothing else says why.
IDLE = {"name": "k", "sm_share": 0.3, "memory_share": 0.2, "dram_share": 0.1, "occupancy_share": 0.7, "gpu_time_ns": MS,
        "blocks": 4096, "sm_count": 108.0, "waves_per_sm": 6.0, "stall": "long scoreboard"}  # fmt: skip


def limit_of(**profile) -> str:
    (kernel,) = measured_kernels(alone([{**IDLE, **profile}]))
    return kernel.limit


@pytest.mark.parametrize(
    ("limit", "profile"),
    [
        ("latency", {}),
        ("memory", {"memory_share": 0.92, "dram_share": 0.92}),
        ("memory", {"memory_share": 0.63, "dram_share": 0.6}),
        ("caches", {"memory_share": 0.92, "dram_share": 0.4}),
        ("either", {"memory_share": 0.92, "dram_share": NAN}),
        ("compute", {"sm_share": 0.9, "dram_share": 0.8, "memory_share": 0.8}),
        ("compute", {"sm_share": 0.9, "tensor_share": 0.0}),
        ("tensor", {"sm_share": 0.9, "tensor_share": 0.88}),
        ("sectors", {"excess_sector_share": 0.5, "dram_share": 0.9, "memory_share": 0.9}),
        ("memory", {"excess_sector_share": 0.19, "dram_share": 0.9, "memory_share": 0.9}),
        ("warps", {"occupancy_share": 0.2}),
        ("blocks", {"occupancy_share": 0.2, "waves_per_sm": 0.5}),
        ("blocks", {"blocks": 107}),
        ("latency", {"blocks": 108}),
        ("latency", {"blocks": 107, "sm_count": 0.0}),  # of how many is not known then
        ("blocks", {"blocks": 1, "gpu_time_ns": 4_000}),
        ("start", {"gpu_time_ns": 9_000}),
        ("tail", {"waves_per_sm": 1.02, "sm_share": 0.31}),  # in two whole waves: 61 %
        ("latency", {"waves_per_sm": 1.02, "sm_share": 0.3}),  # and 59 %
        ("unknown", {"sm_share": NAN}),
        ("unknown", {"memory_share": NAN, "dram_share": NAN}),
    ],
)
def test_a_kernel_has_the_limit_that_its_counters_show(limit, profile):
    assert limit_of(**profile) == limit
    assert limit in KERNEL_LIMITS


def test_near_to_its_peak_a_unit_leaves_little_to_gain():
    def at_limit(share: float) -> bool:
        return measured_kernels(alone([{**IDLE, "memory_share": share, "dram_share": share}]))[0].is_at_limit

    assert at_limit(0.7)
    assert not at_limit(0.69)
    assert not measured_kernels(alone([IDLE]))[0].is_at_limit


def test_each_size_of_a_kernel_is_a_row_with_its_share_of_the_measured_time():
    """3 and 1 ms in one size, 4 in another: 3/4 of 0.9 and 1/4 of 0.7 are 0.85."""
    rows = [
        {**IDLE, "gpu_time_ns": 3 * MS, "memory_share": 0.9, "dram_share": 0.9},
        {**IDLE, "gpu_time_ns": 4 * MS, "blocks": 64},
        {**IDLE, "gpu_time_ns": 1 * MS, "memory_share": 0.7, "dram_share": 0.7},
    ]
    small, large = sorted(measured_kernels(alone(rows)), key=lambda kernel: kernel.blocks)
    assert (small.launches, small.share, small.limit) == (1, 0.5, "blocks")
    assert (large.launches, large.ns, large.share, large.limit) == (2, 4 * MS, 0.5, "memory")
    assert large.unit_share == pytest.approx(0.85)


def test_the_roofline_is_plain_arithmetic_on_the_metrics_of_the_report(tmp_path):
    """40 SMs of 64 lanes at 540 MHz, 64 bytes a cycle at 4.64 GHz; 1,210 FLOP and 13.8 MB in 52.576 µs."""
    more = [
        ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained", "inst/cycle", "2,560"),
        ("smsp__cycles_elapsed.avg.per_second", "cycle/nsecond", "0.54"),
        ("dram__bytes.sum.peak_sustained", "Kbyte/cycle", "0.064"),
        ("dram__cycles_elapsed.avg.per_second", "hz", "4,640,000,000"),
    ]
    (tmp_path / "k.csv").write_text(wide([*RAW, *more]), encoding="utf-8")
    (kernel,) = measured_kernels(read([tmp_path / "k.csv"]))
    seconds, moved, flop = 52_576e-9, 9_612_288 + 4_189_344, 1000 + 10 + 2 * 100
    assert kernel.means["peak_flop_per_second"] == pytest.approx(2 * 2560 * 0.54e9)
    assert kernel.means["peak_dram_bytes_per_second"] == pytest.approx(64 * 4.64e9)
    assert kernel.flop_per_second == pytest.approx(flop / seconds)
    assert kernel.bytes_per_second == pytest.approx(moved / seconds)
    assert kernel.share_of_roof == pytest.approx(moved / seconds / (64 * 4.64e9))
    roof = min(2 * 2560 * 0.54e9, flop / moved * 64 * 4.64e9)  # by the definition
    assert kernel.share_of_roof == pytest.approx(flop / seconds / roof)


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["wild/c-llmc-adamw.ncu-rep", "ncu/mlp-t4-v1.ncu-rep", "ncu/mlp-t4-v7.ncu-rep"])
def test_the_roofline_of_a_real_report_is_that_of_its_raw_metrics(name):
    """Sums and divisions over the metrics as they stand in the file."""

    def of(metric: str) -> list[float]:
        return [launch.metrics[metric][0][0] for launch in launches]

    launches = read_launches(public(name))
    time_ns, ops = of("gpu__time_duration.sum"), "smsp__sass_thread_inst_executed_op_f{}_pred_on.sum.per_cycle_elapsed"
    per_cycle = [a + b + 2 * c for a, b, c in zip(*(of(ops.format(op)) for op in ("add", "mul", "fma")), strict=True)]
    flop = sum(rate * cycles for rate, cycles in zip(per_cycle, of("smsp__cycles_elapsed.avg"), strict=True))
    moved = sum(of("dram__bytes_read.sum")) + sum(of("dram__bytes_write.sum"))
    (kernel,) = measured_kernels(read([public(name)]))
    assert kernel.flop_per_second == pytest.approx(flop / sum(time_ns) * 1e9)
    assert kernel.bytes_per_second == pytest.approx(moved / sum(time_ns) * 1e9)
    peaks = of("dram__bytes.sum.peak_sustained"), of("dram__cycles_elapsed.avg.per_second")
    assert min(a * b for a, b in zip(*peaks, strict=True)) <= kernel.means["peak_dram_bytes_per_second"] * (1 + 1e-9)
    # NVIDIA's own share of the peak is the same measurement.
    shares = of("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed")
    mean = sum(ns * share for ns, share in zip(time_ns, shares, strict=True)) / sum(time_ns) / 100
    assert kernel.share_of_roof == pytest.approx(mean, rel=0.01)


@pytest.mark.parametrize(
    ("counted", "flop", "kind"),
    [
        ({"bf16_dst_fp32": 4e9, "bf16_dst_fp32_sparsity_off": 3e9, "bf16_dst_fp32_sparsity_on": 1e9}, 4e9, "bf16"),
        ({"bf16_dst_fp32_sparsity_off": 3e9, "bf16_dst_fp32_sparsity_on": 1e9}, 4e9, "bf16"),
        ({"fp16": 1e9, "fp8": 3e9, "int8": 9e9}, 4e9, "fp8"),
        ({"fp16_bf16_tf32_dst_fp32": 4e9}, 4e9, "fp16"),
        ({"fp4_fp6_fp8_dst_fp32": 4e9}, 4e9, ""),
        ({"tf32_dst_fp32": 0}, 0, ""),
        ({"int8": 9e9}, NAN, ""),
    ],
)
def test_operations_of_tensor_cores_are_those_of_all_their_types_once(tmp_path, counted, flop, kind):
    rows = [(f"sm__ops_path_tensor_src_{name}.sum", "", f"{count:.0f}") for name, count in counted.items()]
    (tmp_path / "k.csv").write_text(wide([*RAW, *rows]), encoding="utf-8")
    (kernel,) = measured_kernels(read([tmp_path / "k.csv"]))
    assert (kernel.tensor_flop, kernel.tensor_type) == (pytest.approx(flop, nan_ok=True), kind)


def test_a_product_on_tensor_cores_stands_under_their_dense_peak():
    known = {"flop": 1e9, "dram_bytes": 1e9, "peak_flop_per_second": 6e13, "peak_dram_bytes_per_second": 3e12,
             "gpu_time_ns": 1e6, "gpu": "NVIDIA H100 80GB HBM3", "tensor_share": 0.6}  # fmt: skip
    (kernel,) = measured_kernels(alone([{**IDLE, **known, "tensor_flop": 4e11, "tensor_type": "bf16"}]))
    assert kernel.flop_per_second == pytest.approx(401e12)
    assert kernel.flop_per_byte == pytest.approx(401)
    assert kernel.peak_flop_per_second == pytest.approx(989.4e12, rel=1e-3)
    assert kernel.share_of_roof == pytest.approx(401 / 989.4, rel=1e-3)
    (unknown,) = measured_kernels(alone([{**IDLE, **known, "tensor_flop": 4e11, "tensor_type": "fp4"}]))
    assert math.isnan(unknown.share_of_roof)


def test_where_tensor_cores_computed_uncounted_or_no_peak_is_known_nothing_is_said_of_the_roof():
    known = {"flop": 2e9, "dram_bytes": 1e9, "peak_flop_per_second": 1e13, "peak_dram_bytes_per_second": 1e12}
    assert measured_kernels(alone([{**IDLE, **known}]))[0].share_of_roof == pytest.approx(1.0)
    for less in ({"tensor_share": 0.5}, {"peak_flop_per_second": NAN}, {"flop": NAN}):
        assert math.isnan(measured_kernels(alone([{**IDLE, **known, **less}]))[0].share_of_roof)


def test_the_sections_that_no_launch_has_are_missing():
    there = {"sm_share": 0.3, "occupancy_share": 0.5, "waves_per_sm": 2.0}
    assert sections_missing(alone([there, {}])) == (
        "WarpStateStats", "SourceCounters", "MemoryWorkloadAnalysis", "SpeedOfLight_RooflineChart",
        "ComputeWorkloadAnalysis",
    )  # fmt: skip


def test_a_stall_is_said_in_words_and_an_unknown_one_as_it_is():
    assert stall_label("long scoreboard") == "loads from memory (long scoreboard)"
    assert stall_label("a new one") == "a new one"
    assert stall_label("") == ""
