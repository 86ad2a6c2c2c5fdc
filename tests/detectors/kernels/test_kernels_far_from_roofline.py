"""kernels-far-from-roofline: kernels that keep neither arithmetic nor memory busy, as Nsight Compute measured them."""

from __future__ import annotations

import pytest
from builders import ELEMENTWISE, GEMM, SGEMM, draw, findings, only_finding, summary
from ncu_builders import MS, NAN, alone, steps, with_ncu

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.vocabulary.rulebook import load_rules

RULE = "kernels-far-from-roofline"
#: 30 % of the processors, 20 % of the memory, warps enough.
FAR = {"name": "slow", "sm_share": 0.3, "memory_share": 0.2, "dram_share": 0.1, "occupancy_share": 0.7, "stall": "barrier",
       "gpu_time_ns": MS}  # fmt: skip


def recorded(profile: dict | None = None, *, ns: int = 2 * MS, name: str = "slow", given=(), more=()):
    """In each step of 10 ms a kernel of 2 ms that was measured, and a matmul that was not."""
    drawn = steps({"name": name, "ns": ns}, {"name": GEMM, "ns": 10 * MS - ns})
    return with_ncu(drawn, [{**FAR, "name": name, **(profile or {})}, *more], given)


def test_it_fires_with_what_the_roofline_leaves_of_the_step():
    """2 ms at 30 % of its limit: at 60 % it takes 1 ms, at 80 % 0.75 ms, at the limit 0.6 ms."""
    finding = only_finding(RULE, recorded())
    saving = finding.saving_ns_per_step
    expected = [2 * MS * (1 - 0.3 / reached) for reached in (0.6, 0.8, 1.0)]
    assert [saving.low, saving.likely, saving.high] == pytest.approx(expected, rel=1e-6)
    assert finding.affected_ns == 2 * MS
    assert "take 2.0 of 10.0 ms (20 %)" in summary(finding)
    assert "reach at most 30 % of the peak" in summary(finding)
    rows = finding.work[0, 0]
    assert (rows.sum(), rows.size) == (rows.size // 2, rows.size)


def test_the_evidence_holds_what_was_measured_and_says_what_was_not():
    finding = only_finding(RULE, recorded({"occupancy_share": NAN, "tensor_share": 0.05}))
    (table,) = [each for each in finding.evidence if hasattr(each, "rows")]
    assert table.columns == ("kernel", "count", "time", "SMs", "tensor cores", "memory", "DRAM", "warps", "waits for")
    waits = "other warps at a barrier (barrier)"
    assert table.rows == (("slow", 1.0, 2 * MS, 0.3, 0.05, 0.2, 0.1, "–", waits),)
    shares = {each.label: each.value for each in finding.evidence if hasattr(each, "value")}
    assert shares["of all kernel time, that of measured kernels"] == pytest.approx(0.2)


def test_it_promises_no_more_than_nvidias_rules_where_they_estimate():
    given = [{"launch": 0, "name": "CPIStall", "speedup_share": 0.4}]
    saving = only_finding(RULE, recorded(given=given)).saving_ns_per_step
    assert (saving.low, saving.likely) == (pytest.approx(0.8 * MS), pytest.approx(0.8 * MS))
    assert saving.high == pytest.approx(1.4 * MS)  # the roofline itself
    part = [{"launch": 0, "name": "CPIStall", "speedup_share": 0.1, "is_global": False}]
    assert only_finding(RULE, recorded(given=part)).saving_ns_per_step.likely == pytest.approx(1.25 * MS)


def test_it_promises_only_what_the_kernel_runs_alone():
    """Beside it a matmul runs for half of its 2 ms: what is won there makes no step shorter."""
    drawn = steps({"name": "slow", "ns": 2 * MS}, {"name": GEMM, "ns": 9 * MS, "start_ns": MS, "stream": 8})
    saving = only_finding(RULE, with_ncu(drawn, [FAR])).saving_ns_per_step
    assert saving.high == pytest.approx(MS * (1 - 0.3))


def test_several_kernels_are_each_taken_at_their_own_distance():
    drawn = steps({"name": "slow", "ns": 2 * MS}, {"name": "slower", "ns": MS}, {"name": GEMM, "ns": 7 * MS})
    finding = only_finding(
        RULE, with_ncu(drawn, [FAR, {**FAR, "name": "slower", "sm_share": 0.1, "memory_share": 0.15}])
    )
    assert finding.saving_ns_per_step.high == pytest.approx(2 * MS * 0.7 + MS * 0.85, rel=1e-6)
    assert finding.values["busy_percent"] == pytest.approx(100 * (2 * 0.3 + 1 * 0.15) / 3)


@pytest.mark.parametrize(
    "profile",
    [
        {"sm_share": 0.7},
        {"memory_share": 0.9},
        {"dram_share": 0.65},
        {"sm_share": NAN},  # not measured: nobody knows
        {"memory_share": NAN, "dram_share": NAN},
        {"occupancy_share": 0.2},  # low-occupancy-kernels'
        {"excess_sector_share": 0.5},  # uncoalesced-access'
        {"blocks": 512},  # another size of it was measured
    ],
)
def test_it_stays_silent_where_it_is_near_or_unknown_or_another_rules(profile):
    assert findings(RULE, recorded(profile)) == []


@pytest.mark.parametrize(
    "name",
    [
        SGEMM,  # fp32-matmuls'
        ELEMENTWISE,  # elementwise-chains'
        "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(int)",
        "void cudnn::ops::nchwToNhwcKernel<__half, __half, float>(Params)",
        "void conv_depthwise2d_forward_kernel<float, 3>(int)",
    ],
)
def test_it_stays_silent_where_the_kernel_belongs_to_another_rule(name):
    assert findings(RULE, recorded(name=name)) == []


def test_it_stays_silent_where_kernels_are_short():
    short = [{"name": "slow", "ns": 9_000}] * 100
    assert findings(RULE, with_ncu(steps(*short, {"name": GEMM, "ns": MS}), [FAR])) == []
    longer = [{"name": "slow", "ns": 10_000}] * 100
    assert len(findings(RULE, with_ncu(steps(*longer, {"name": GEMM, "ns": MS}), [FAR]))) == 1


def test_it_stays_silent_just_below_each_threshold():
    assert findings(RULE, recorded({"sm_share": 0.601})) == []
    assert len(findings(RULE, recorded({"sm_share": 0.599}))) == 1
    assert findings(RULE, recorded(ns=490_000)) == []  # 4.9 % of the step
    assert len(findings(RULE, recorded(ns=510_000))) == 1


def test_without_a_timeline_it_names_kernels_and_promises_nothing():
    finding = only_finding(RULE, alone([FAR, {**FAR, "name": "good", "sm_share": 0.9, "gpu_time_ns": 3 * MS}]))
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high, finding.work, finding.affected_ns) == (0, 0, 0, {}, 0)
    assert "25 % of the measured time (1.000 of 4.000 ms, most in `slow`)" in summary(finding)
    assert "At the peak of their busiest unit they would take 0.300 ms." in summary(finding)
    assert finding.measured_gain_ns == pytest.approx(0.7 * MS)
    assert "their share of the program's time is not known" in summary(finding)


def test_the_whole_diagnosis_promises_no_more_than_the_detector():
    """The host waits for the device at the end of each step: played again, the step wins what the kernel loses."""
    drawn = draw(kernels=" #### GGGGGGGG ", host=["ll sssssssssss"], unit_us=500, repeat=6)
    slow = {**FAR, "name": "some_kernel", "blocks": UNKNOWN}
    (found,) = diagnose(with_ncu(drawn, [slow]), [load_rules()[RULE]]).findings
    saving = found.saving_ns_per_step
    assert saving.likely == pytest.approx(2 * MS * (1 - 0.3 / 0.8), rel=0.02)
    assert saving.low <= saving.likely <= saving.high <= 2 * MS * (1 - 0.3) + 1
