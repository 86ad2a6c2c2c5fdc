"""The notes on measured kernels without a timeline."""

from __future__ import annotations

from ncu_builders import profiles

from perfdoctor.readers.ncu.profiles import alone


def test_the_longest_kernels_are_named_with_how_busy_they_are():
    """30 and 10 µs of one kernel, 10 of another: shares are means over its time, of what was measured."""
    rows = profiles(
        {"name": "void silu<float>(int)", "gpu": "T4", "gpu_time_ns": 30_000, "sm_share": 0.2, "memory_share": 0.9,
         "stall": "long scoreboard"},
        {"name": "void silu<float>(int)", "gpu": "T4", "gpu_time_ns": 10_000, "sm_share": 0.6, "memory_share": float("nan"),
         "stall": "barrier"},
        {"name": "copy", "gpu": "T4", "gpu_time_ns": 10_000},
    )  # fmt: skip
    assert list(alone("k.ncu-rep", rows)) == [
        "k.ncu-rep: 3 launches of 2 kernels on T4.",
        "silu: 40.0 µs, 80 % of the measured time; SMs 30 %, memory 90 % of their peak; its warps wait for long scoreboard.",
        "copy: 10.0 µs, 20 % of the measured time.",
    ]


def test_without_times_only_their_number_is_noted():
    assert list(alone("k.csv", profiles({"name": "copy"}))) == ["k.csv: 1 launch of 1 kernel."]
    assert list(alone("k.csv", profiles())) == []


def test_no_more_than_three_are_named_and_long_names_are_cut():
    rows = profiles(*({"name": f"k{n}" + "x" * 99, "gpu_time_ns": 1000 * n} for n in range(1, 6)))
    _, *named = alone("k.csv", rows)
    assert [note[:3] for note in named] == ["k5x", "k4x", "k3x"]
    assert all(note.index(":") == 60 for note in named)
