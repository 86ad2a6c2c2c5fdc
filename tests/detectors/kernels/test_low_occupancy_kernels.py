"""low-occupancy-kernels: kernels far from every limit with most of the places for warps empty."""

from __future__ import annotations

import pytest
from builders import GEMM, findings, only_finding, summary
from ncu_builders import MS, NAN, alone, steps, with_ncu

RULE = "low-occupancy-kernels"
#: A quarter of the warps, 15 % of the processors, 10 % of the memory.
FEW = {"name": "slow", "sm_share": 0.15, "memory_share": 0.1, "occupancy_share": 0.25, "occupancy_limit_share": 0.31,
       "occupancy_limiter": "registers", "waves_per_sm": 3.0, "gpu_time_ns": MS}  # fmt: skip


def recorded(profile: dict | None = None, *, ns: int = 2 * MS, given=()):
    drawn = steps({"name": "slow", "ns": ns}, {"name": GEMM, "ns": 10 * MS - ns})
    return with_ncu(drawn, [{**FEW, **(profile or {})}], given)


def test_it_fires_with_what_more_warps_could_hide():
    """25 % of the warps: with twice as many half of the time goes; a quarter is left where all places are taken."""
    finding = only_finding(RULE, recorded())
    saving = finding.saving_ns_per_step
    assert [saving.low, saving.likely, saving.high] == pytest.approx([0, 1 * MS, 1.5 * MS], rel=1e-6)
    assert finding.situation == "registers"
    assert "occupancy of 25 %, because each thread uses many registers" in summary(finding)


def test_what_was_not_measured_is_no_evidence():
    def labels(profile: dict) -> list[str]:
        return [each.label for each in only_finding(RULE, recorded(profile)).evidence]

    assert "places that could be taken" in labels({})
    assert "places that could be taken" not in labels({"occupancy_limit_share": NAN})


def test_the_busiest_unit_bounds_what_warps_bring():
    """At 50 % of its processors it cannot get more than 1.6 times as fast as those allow at 80 %."""
    saving = only_finding(RULE, recorded({"sm_share": 0.5})).saving_ns_per_step
    assert saving.low == 0
    assert saving.likely == pytest.approx(2 * MS * (1 - 0.5 / 0.8), rel=1e-6)
    assert saving.high == pytest.approx(2 * MS * 0.5, rel=1e-6)


def test_it_promises_no_more_than_nvidias_rules_where_they_estimate():
    saving = only_finding(RULE, recorded(given=[{"launch": 0, "name": "O", "speedup_share": 0.1}])).saving_ns_per_step
    assert (saving.low, saving.likely) == (0, pytest.approx(0.2 * MS))


def test_a_larger_grid_takes_the_places_that_there_are():
    """31 % of the warps fit on a processor: 0.25 of 0.31 is left."""
    saving = only_finding(RULE, recorded({"waves_per_sm": 0.2})).saving_ns_per_step
    assert saving.likely == pytest.approx(2 * MS * (1 - 0.25 / 0.31), rel=1e-6)


@pytest.mark.parametrize(
    ("profile", "situation", "says"),
    [
        ({"waves_per_sm": 0.2}, "grid", "fewer blocks than fit on the device"),
        ({"occupancy_limiter": "shared memory"}, "shared memory", "much shared memory"),
        ({"occupancy_limiter": "warps"}, "", "achieved occupancy of 25 %, and keep"),
        ({"occupancy_limiter": "", "waves_per_sm": NAN}, "", "occupancy of 25 %"),
    ],
)
def test_it_says_what_keeps_the_warps_away(profile, situation, says):
    finding = only_finding(RULE, recorded(profile))
    assert finding.situation == situation
    assert says in summary(finding)


@pytest.mark.parametrize(
    "profile",
    [
        {"sm_share": 0.7},  # a good matmul needs few warps
        {"memory_share": 0.9},
        {"occupancy_share": 0.8},
        {"occupancy_share": NAN},
        {"sm_share": NAN},
        {"excess_sector_share": 0.5},
    ],
)
def test_it_stays_silent_where_warps_are_enough_or_unknown(profile):
    assert findings(RULE, recorded(profile)) == []


def test_it_stays_silent_on_kernels_that_nobody_measured():
    assert findings(RULE, recorded({"name": "another"})) == []


def test_it_stays_silent_just_below_each_threshold():
    assert findings(RULE, recorded({"occupancy_share": 0.401})) == []
    assert len(findings(RULE, recorded({"occupancy_share": 0.399}))) == 1
    assert findings(RULE, recorded(ns=490_000)) == []
    assert len(findings(RULE, recorded(ns=510_000))) == 1


def test_without_a_timeline_it_promises_nothing():
    finding = only_finding(RULE, alone([FEW]))
    assert finding.saving_ns_per_step.high == 0
    assert "their share of the program's time is not known" in summary(finding)
    assert (finding.situation, finding.measured_gain_ns) == ("alone registers", pytest.approx(0.75 * MS))
    assert "With all places for warps taken they would take 0.250 ms at the least" in summary(finding)


def test_a_grid_with_fewer_blocks_than_sms_leaves_sms_empty_however_full_the_others_are():
    """60 % of the places of 33 of 132 SMs are 15 % of all: at most that much of its time is left."""
    small = {"occupancy_share": 0.6, "sm_count": 132.0, "blocks": 33, "waves_per_sm": NAN}
    finding = only_finding(RULE, alone([{**FEW, **small}]))
    assert (finding.situation, finding.measured_gain_ns) == ("alone grid", pytest.approx(0.85 * MS))
    assert findings(RULE, alone([{**FEW, **small, "blocks": 132}])) == []
