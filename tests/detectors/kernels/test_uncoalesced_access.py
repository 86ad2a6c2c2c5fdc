"""uncoalesced-access: kernels that fetch sectors of which they use a part."""

from __future__ import annotations

import pytest
from builders import ELEMENTWISE, GEMM, findings, only_finding, summary
from folders import public
from ncu_builders import MS, NAN, alone, steps, with_ncu

from perfdoctor.readers.ncu import profiles as ncu
from perfdoctor.records.savings import Saving

RULE = "uncoalesced-access"
_THEIRS = "UncoalescedGlobalAccess"
#: Three of four sectors for nothing, memory busy for 80 % of the time.
WASTE = {"name": "strided", "sm_share": 0.1, "memory_share": 0.8, "dram_share": 0.6, "excess_sector_share": 0.75,
         "gpu_time_ns": MS}  # fmt: skip


def recorded(profile: dict | None = None, *, ns: int = 2 * MS, given=()):
    drawn = steps({"name": "strided", "ns": ns}, {"name": GEMM, "ns": 10 * MS - ns})
    return with_ncu(drawn, [{**WASTE, **(profile or {})}], given)


def test_it_fires_with_what_the_busiest_unit_leaves_once_nothing_is_fetched_in_vain():
    """DRAM stays at 60 %, for nobody knows that its bytes were wasted: it may come to 80 %, at most to all of it."""
    finding = only_finding(RULE, recorded())
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely) == (pytest.approx(0, abs=1), pytest.approx(2 * MS * (1 - 0.6 / 0.8), rel=1e-6))
    assert saving.high == pytest.approx(2 * MS * (1 - 0.6), rel=1e-6)
    assert "take 2.0 of 10.0 ms (20 %), and 75 % of the sectors that they request" in summary(finding)


def test_memory_has_less_to_send_where_it_sent_more_than_is_used():
    """400 of 1000 bytes would do: 60 % becomes 24 %; L2 goes from 90 to 22.5 %, the processors stay at 10."""
    saving = only_finding(RULE, recorded({"useful_bytes": 400, "dram_bytes": 1000, "l2_share": 0.9})).saving_ns_per_step
    expected = [2 * MS * (1 - 0.24 / reached) for reached in (0.6, 0.8, 1.0)]
    assert [saving.low, saving.likely, saving.high] == pytest.approx(expected, rel=1e-6)


def test_other_units_have_the_same_to_do():
    saving = only_finding(RULE, recorded({"sm_share": 0.7, "useful_bytes": 1, "dram_bytes": 1000})).saving_ns_per_step
    assert saving.likely == pytest.approx(2 * MS * (1 - 0.7 / 0.8), rel=1e-6)
    cache = recorded({"l1_share": 1.0, "excess_sector_share": 0.4, "useful_bytes": 1, "dram_bytes": 1000})
    assert only_finding(RULE, cache).saving_ns_per_step.likely == pytest.approx(2 * MS * (1 - 0.6 / 0.8), rel=1e-6)


def test_it_promises_no_more_than_is_wasted_nor_than_nvidias_rule_about_the_same():
    little = {"useful_bytes": 1, "dram_bytes": 1000, "excess_sector_share": 0.3}
    assert only_finding(RULE, recorded(little)).saving_ns_per_step.likely == pytest.approx(2 * MS * 0.3, rel=1e-6)
    given = [
        {"launch": 0, "name": _THEIRS, "speedup_share": 0.25},
        {"launch": 0, "name": "CPIStall", "speedup_share": 0.01},  # about something else
    ]
    saving = only_finding(RULE, recorded({**little, "excess_sector_share": 0.9}, given=given)).saving_ns_per_step
    assert (saving.low, saving.likely) == (
        pytest.approx(2 * MS * 0.25, rel=1e-6),
        pytest.approx(2 * MS * 0.25, rel=1e-6),
    )
    assert saving.high == pytest.approx(2 * MS * 0.9, rel=1e-6)  # the processors' 10 %


def test_in_which_order_pytorchs_own_kernels_read_is_up_to_the_program():
    drawn = steps({"name": ELEMENTWISE, "ns": 2 * MS}, {"name": GEMM, "ns": 8 * MS})
    finding = only_finding(RULE, with_ncu(drawn, [{**WASTE, "name": ELEMENTWISE}]))
    assert finding.saving_ns_per_step.likely == pytest.approx(0.5 * MS)


def test_where_memory_was_not_measured_nothing_is_promised():
    assert only_finding(RULE, recorded({"memory_share": NAN, "dram_share": NAN})).saving_ns_per_step == Saving(0, 0, 0)


@pytest.mark.recordings
def test_what_a_real_fix_saved_lies_within_what_is_predicted():
    """A sum of two matrices on a T4, measured before and after its threads read in order: 66.4 µs and 52.6 µs."""
    before, after = (ncu.read(public(f"ncu/mlp-t4-{name}.ncu-rep")) for name in ("v7", "v1"))
    faulty, fixed = (each["kernel_profiles"].floats("gpu_time_ns")[0] for each in (before, after))
    name, blocks = before["kernel_profiles"].name[0], int(before["kernel_profiles"]["blocks"][0])
    drawn = steps({"name": name, "ns": int(faulty), "blocks": blocks}, {"name": GEMM, "ns": int(faulty)})
    saving = only_finding(RULE, ncu.with_profiles(drawn, [before])).saving_ns_per_step
    assert saving.low < faulty - fixed < saving.high
    assert saving.likely == pytest.approx(faulty - fixed, rel=0.5)
    assert findings(RULE, ncu.with_profiles(drawn, [after])) == []


@pytest.mark.parametrize("profile", [{"excess_sector_share": NAN}, {"excess_sector_share": 0.0}, {"name": "another"}])
def test_it_stays_silent_where_nothing_is_wasted_or_nobody_knows(profile):
    assert findings(RULE, recorded(profile)) == []


def test_it_stays_silent_where_kernels_are_short():
    drawn = steps(*[{"name": "strided", "ns": 9_000}] * 100, {"name": GEMM, "ns": MS})
    assert findings(RULE, with_ncu(drawn, [WASTE])) == []


def test_it_stays_silent_just_below_each_threshold():
    assert findings(RULE, recorded({"excess_sector_share": 0.199})) == []
    assert len(findings(RULE, recorded({"excess_sector_share": 0.201}))) == 1
    assert findings(RULE, recorded(ns=290_000)) == []
    assert len(findings(RULE, recorded(ns=310_000))) == 1


def test_without_a_timeline_it_promises_nothing():
    finding = only_finding(RULE, alone([WASTE]))
    assert (finding.saving_ns_per_step.high, finding.situation) == (0, "alone")
    assert "request sectors of which 75 % are unnecessary" in summary(finding)
