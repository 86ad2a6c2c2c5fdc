"""launch-bound: the host launches work more slowly than the device does it."""

from __future__ import annotations

import pytest
from builders import draw, findings, of_step, only_finding, summary

from perfdoctor.model.timeline import merge
from perfdoctor.records.savings import Saving


def step(*, busy: int, period: int = 20, kernels: int = 5, unit_us: float = 10, **more):
    """`kernels` launches a step, one each `period` units, each kernel `busy` units long; the host always in an op."""
    width = period * kernels
    picture = {
        "kernels": ("  " + "#" * busy + " " * (period - busy - 2)) * kernels,
        "host": [("l" + " " * (period - 1)) * kernels, "o" * width],
    }
    return draw(**{**picture, "repeat": 6, "unit_us": unit_us, **more})


def test_it_fires_where_each_kernel_waits_for_its_launch():
    shares = {"recoverable_share_low": 0.3, "recoverable_share_likely": 0.6, "recoverable_share_high": 0.95}
    finding = only_finding("launch-bound", step(busy=5), **shares)
    # five kernels of 50 µs, one each 200 µs: 750 of 1,000 µs idle
    expected = {**of_step("idle", 0.75, 1.0), "kernels_per_step": 5.0, "kernel_us": 50.0}
    assert {name: finding.values[name] for name in expected} == expected
    assert finding.situation == ""
    assert finding.saving_ns_per_step == Saving(225_000, 450_000, 712_500)
    assert finding.confidence == "high"
    assert "while the host is busy launching: 5 kernels a step, 50 µs each" in summary(finding)


def test_of_several_ranks_it_names_the_one_that_loses_most():
    """Rank 1's device is idle for 75 % of its step, rank 0's for a quarter: the rank's own numbers, and the mean."""
    finding = only_finding("launch-bound", merge([step(busy=15), step(busy=5, rank=1)]))
    assert (finding.values["rank"], finding.situation) == (1, "ranks")
    assert finding.values["idle_ms"] == pytest.approx(0.75)
    assert finding.values["lost_ms"] == pytest.approx((0.75 + 0.25) / 2)
    assert summary(finding).startswith("On rank 1, more than on any other of 2, the GPU is idle for 0.8 ms of a 1.0 ms step (75 %)")  # fmt: skip


def test_without_framework_ops_it_is_less_sure():
    calls = ("l" + " " * 19) * 5
    found = step(busy=5, host=[calls, "r" * 10])
    assert only_finding("launch-bound", found).confidence == "medium"


def test_it_stays_silent_just_below_the_threshold():
    # one gap of 1 unit in 50 is 2 %, one of 2 is 4 %
    for gap, expected in ((1, 0), (2, 1)):
        picture = draw(
            kernels=" " * gap + "#" * (50 - gap),
            host=["l" + " " * 49, "o" * 50],
            repeat=6,
            unit_us=10,
        )
        assert len(findings("launch-bound", picture)) == expected


def test_it_stays_silent_where_tiny_kernels_wait_in_a_deep_queue():
    """The device is far behind: gaps between its kernels are not the host's fault, CUDA graphs would not help."""
    picture = draw(
        kernels="# # # # # # # # # # ",
        host=["l l l l l l l l l l ", "o" * 20],
        host_ahead=60,
        repeat=6,
        unit_us=10,
    )
    assert findings("launch-bound", picture) == []


def test_it_stays_silent_where_one_launch_replays_a_whole_graph():
    picture = draw(kernels=" " + "@" * 19, host=["@" + " " * 19, "oo"], repeat=6, unit_us=10)
    # the graph is one row: split it into launches of its own, all busy
    assert findings("launch-bound", picture, min_share_of_step=0.06) == []


def test_it_stays_silent_where_the_host_computes_instead_of_launching():
    picture = draw(
        kernels="  " + "#" * 8 + " " * 30,
        host=["l" + " " * 39, "o" * 40],
        repeat=6,
        unit_us=1000,
    )
    share = sum(finding.values["idle_percent"] for finding in findings("launch-bound", picture))
    assert share < 10
