"""step-drift: steps become longer and longer."""

from __future__ import annotations

from itertools import combinations
from statistics import mean, median

import numpy as np
import pytest
from builders import BASE_NS, findings, only_finding, summary, timeline

from perfdoctor.model.timeline import Timeline
from perfdoctor.records.savings import Saving

MS = 1_000_000


def steps(*lengths_ms: float, growing: str = "idle") -> Timeline:
    """Steps of these lengths; what is beyond 9 ms is idle, or (`compute`) the kernel's."""
    at, kernels, calls, ranges = BASE_NS, [], [], []
    for number, length in enumerate([*lengths_ms, lengths_ms[-1]]):
        end = at + round(length * MS)
        until = end if growing == "compute" else at + 9 * MS
        kernels.append({"start_ns": at, "end_ns": until, "name": "k", "correlation": number, "process": 100})
        calls.append({"start_ns": at - 10_000, "end_ns": at - 9_000, "name": "cudaLaunchKernel", "correlation": number})
        ranges.append({"start_ns": at - 11_000, "end_ns": end - 12_000, "name": f"ProfilerStep#{number}"})
        at = end
    return timeline(kernels=kernels, calls=calls, ranges=ranges, collectives=[], copies=[])


def rising(by: float, count: int = 20) -> list[float]:
    return [10 + by * number for number in range(count)]


def test_it_fires_where_each_step_is_longer_than_the_one_before():
    lengths = rising(0.2)
    finding = only_finding("step-drift", steps(*lengths, growing="compute"))
    slope = median((b - a) / (j - i) for (i, a), (j, b) in combinations(enumerate(lengths), 2))
    assert finding.values == {
        "rise_percent": pytest.approx(100 * slope * 19 / mean(lengths)),
        "steps_seen": 20,
        "rise_ms": pytest.approx(slope),
        "cause": "compute",
    }
    assert finding.saving_ns_per_step == Saving(0, 0, 0)
    assert "rises by 32 % over 20 recorded steps (0.20 ms from each step to the next)" in summary(finding)


def test_the_part_that_rises_is_named():
    assert only_finding("step-drift", steps(*rising(0.2))).values["cause"] != "compute"


def test_it_stays_silent_just_below_a_threshold():
    assert findings("step-drift", steps(*rising(0.055))) == []  # 9.9 % in 20 steps
    assert len(findings("step-drift", steps(*rising(0.057)))) == 1
    assert findings("step-drift", steps(*rising(0.2, 11))) == []
    assert len(findings("step-drift", steps(*rising(0.2, 12)))) == 1


def test_it_stays_silent_where_steps_waver():
    assert findings("step-drift", steps(*np.random.default_rng(3).normal(12, 0.7, 30).tolist())) == []


def test_it_stays_silent_where_one_step_changed_it_all():
    """Other work from the middle on is a step up, and no drift."""
    noise = np.random.default_rng(1).normal(0, 0.05, 20)
    assert findings("step-drift", steps(*(np.array([10] * 10 + [13] * 10) + noise).tolist())) == []


def test_it_stays_silent_where_steps_become_shorter():
    assert findings("step-drift", steps(*rising(0.2)[::-1])) == []
