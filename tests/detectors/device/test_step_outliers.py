"""step-outliers: some steps take much longer than their neighbours."""

from __future__ import annotations

from math import log
from statistics import mean, median

import numpy as np
import pytest
from builders import BASE_NS, findings, only_finding, summary, timeline

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.outliers import OWNERS
from perfdoctor.model.timeline import Timeline
from perfdoctor.vocabulary.rulebook import load_rules

MS = 1_000_000


def steps(*lengths_ms: float, compute=None, blocks: int = 100, storage: bool = False) -> Timeline:
    """Steps of these lengths, each one kernel of 9 ms (or as long as `compute`) with its call 10 µs before it.

    With `storage` the host saves a file from the end of the kernel to the end of the step. A last step ends the others.
    """
    at, kernels, calls, ranges = BASE_NS, [], [], []
    busy = list(compute or [9] * len(lengths_ms))
    for number, (length, work) in enumerate(zip([*lengths_ms, 10], [*busy, 9], strict=True)):
        end, until = at + round(length * MS), at + round(work * MS)
        kernels.append({"start_ns": at, "end_ns": until, "name": "k", "correlation": number, "process": 100,
                        "blocks": blocks})  # fmt: skip
        calls.append({"start_ns": at - 10_000, "end_ns": at - 9_000, "name": "cudaLaunchKernel", "correlation": number})
        ranges.append({"start_ns": at - 11_000, "end_ns": end - 12_000, "name": f"ProfilerStep#{number}"})
        if storage and length - work > 1:
            ranges.append(
                {"start_ns": until - 20_000, "end_ns": end - 20_000, "name": "torch/serialization.py(1): save"}
            )
        at = end
    return timeline(kernels=kernels, calls=calls, ranges=ranges, collectives=[], copies=[])


NORMAL = [10, 10.1, 9.9, 10, 10.1, 9.9]


def test_it_fires_where_a_step_is_far_longer():
    lengths = [*NORMAL, 30, *NORMAL]
    finding = only_finding("step-outliers", steps(*lengths))
    assert finding.values["long_steps"] == 1
    assert finding.values["steps_seen"] == 13
    assert finding.values["longest_ms"] == pytest.approx(30)
    others = sorted([*NORMAL, *NORMAL])
    assert finding.values["median_ms"] == pytest.approx(median(others))
    # computed again in plain Python: what is above the median of the others, spread over all steps
    lost = (30 - median(others)) / len(lengths)
    saving = finding.saving_ns_per_step
    assert saving.likely == pytest.approx(lost * MS, rel=1e-6)
    assert saving.high == pytest.approx((30 - others[1]) / len(lengths) * MS, rel=1e-3)
    # one of thirteen by chance: nine times out of ten such a one comes at least in one of a hundred and thirty
    assert saving.low == pytest.approx(-log(0.9) * (30 - others[-2]) / len(lengths) * MS, rel=0.1)
    assert finding.values["lost_percent"] == pytest.approx(100 * lost / mean(lengths))
    assert finding.situation == ""
    assert "1 of 13 steps are far longer than the median of 10.0 ms (longest 30.0 ms)" in summary(finding)


def test_the_part_that_grew_is_named_and_its_owner_stands_above():
    finding = only_finding("step-outliers", steps(*NORMAL, 30, *NORMAL, storage=True))
    assert finding.values["cause"] == "storage"
    assert finding.values["cause_percent"] == pytest.approx(100, abs=1)
    assert finding.symptom_of == ("blocking-checkpoint",)
    found = diagnose(steps(*NORMAL, 30, *NORMAL, storage=True), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "blocking-checkpoint")
    assert [each.rule for each in above.symptoms] == ["step-outliers"]
    assert [each.rule for each in found if each.rule == "step-outliers"] == []


def test_a_rhythm_is_reported():
    finding = only_finding("step-outliers", steps(*([10] * 5 + [30]) * 3, storage=True))
    assert finding.situation == "periodic"
    assert finding.values["period"] == 6
    assert finding.confidence == "high"
    assert summary(finding).startswith("Every 6 steps one step is far longer")


def test_two_do_not_make_a_rhythm():
    assert only_finding("step-outliers", steps(*([10] * 7 + [30]) * 2)).situation == ""


def test_a_slower_device_is_a_loss_and_more_work_is_not():
    """The same kernel and blocks took 29 instead of 9 ms; or the recording does not say how large it was."""
    compute = [9] * 6 + [29] + [9] * 6
    slower = only_finding("step-outliers", steps(*NORMAL, 30, *NORMAL, compute=compute))
    assert slower.values["cause"] == "compute"
    assert slower.saving_ns_per_step.likely == pytest.approx(20 * MS / 13, rel=0.01)
    unknown = only_finding("step-outliers", steps(*NORMAL, 30, *NORMAL, compute=compute, blocks=-1))
    assert (unknown.saving_ns_per_step.low, unknown.saving_ns_per_step.likely) == (0, 0)


def test_it_stays_silent_just_below_either_threshold():
    assert findings("step-outliers", steps(*NORMAL, 11.9, *NORMAL)) == []  # 19 % longer
    assert findings("step-outliers", steps(*NORMAL, 13.9, *NORMAL)) == []  # 3.9 of 133.9 ms is 2.9 %
    assert len(findings("step-outliers", steps(*NORMAL, 14.3, *NORMAL))) == 1
    assert findings("step-outliers", steps(10, 10, 10, 30, 10, 10, 10)) == []  # seven steps are too few
    assert len(findings("step-outliers", steps(10, 10, 10, 30, 10, 10, 10, 10))) == 1


def test_it_stays_silent_where_steps_waver():
    """Batches of many lengths: the quartiles are far apart, and none stands out."""
    lengths = np.random.default_rng(0).uniform(8, 20, 40).tolist()
    assert findings("step-outliers", steps(*lengths)) == []


def test_it_stays_silent_where_steps_are_skewed():
    """Sequences of lengths as texts have them: a few are three times as long as most, and none of them is odd."""
    lengths = (10 * np.random.default_rng(2).lognormal(0, 0.5, 60)).tolist()
    assert max(lengths) > 2.5 * median(lengths)
    assert findings("step-outliers", steps(*lengths, compute=[5] * 60)) == []


def test_it_stays_silent_where_there_are_two_kinds_of_steps():
    assert findings("step-outliers", steps(*[10, 10, 30] * 5)) == []


def test_it_stays_silent_on_even_steps():
    assert findings("step-outliers", steps(*[10] * 20)) == []


def test_owners_are_rules():
    known = set(load_rules())
    stay = {"host-work", "allocator-churn", "garbage-collection", "recompilation"}
    assert {owner for owners in OWNERS.values() for owner in owners} <= known | stay
