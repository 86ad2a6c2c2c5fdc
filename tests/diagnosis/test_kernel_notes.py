"""What is said of kernels that were measured one by one, without a timeline?"""

from __future__ import annotations

from ncu_builders import MS, alone, steps, with_ncu

from perfdoctor.diagnosis.kernel_notes import of_single_kernels
from perfdoctor.metrics.accounting.prepare import prepare

SILU = {"name": "void silu<float>(int)", "gpu": "T4", "sm_share": 0.2, "dram_share": 0.9, "memory_share": 0.9}


def notes(*rows: dict) -> list[str]:
    return list(of_single_kernels(prepare(alone(rows))))


def test_each_of_the_longest_is_named_with_its_limit_and_what_moves_it():
    waits = {"name": "scan", "sm_share": 0.3, "memory_share": 0.2, "stall": "barrier", "gpu_time_ns": 10_000}
    copy = {"name": "copy", "gpu_time_ns": 10_000}
    first, second, third, lacking = notes(copy, waits, {**SILU, "gpu_time_ns": 60_000})
    assert first == (
        "silu: 60.0 µs, 75 % of the measured time; at the limit of the memory bandwidth (DRAM at 90 % of its peak). "
        "Shorter only with fewer bytes: fused kernels, smaller types."
    )
    assert second == "copy: 10.0 µs, 12 % of the measured time; what limits it was not measured."
    assert "limited by latency (no unit above 30 % of its peak, its warps wait for other warps at a" in third
    assert lacking.startswith(
        "Record with ncu --set full, or --section, what Nsight Compute did not measure: occupancy (Occup"
    )


def test_of_what_nothing_was_measured_that_is_said():
    assert notes({"name": "flash"})[0] == "flash: its time and its limit were not measured."


def test_a_grid_that_leaves_sms_empty_is_counted():
    small = {"name": "k", "sm_share": 0.1, "memory_share": 0.1, "blocks": 8, "sm_count": 132.0, "gpu_time_ns": MS}
    assert "limited by a grid that does not fill the SMs (8 blocks on 132 SMs, no unit above 10 %" in notes(small)[0]


def test_no_more_than_three_are_named_and_long_names_are_cut():
    named = notes(*({**SILU, "name": f"k{n}" + "x" * 99, "gpu_time_ns": 1000 * n} for n in range(1, 6)))[:-1]
    assert [note[:3] for note in named] == ["k5x", "k4x", "k3x"]
    assert all(note.index(":") == 40 for note in named)


def test_without_times_none_is_named_and_beside_a_timeline_nothing_is_said():
    assert not [note for note in notes(SILU) if note.startswith("silu")]
    assert list(of_single_kernels(prepare(with_ncu(steps({"name": "k", "ns": MS}), [SILU])))) == []
