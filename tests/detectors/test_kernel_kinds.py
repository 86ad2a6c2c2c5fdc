"""Rules about one kind of kernels: each finds its kind, stays silent just below, and counts only time of its own."""

from __future__ import annotations

import pytest
from builders import findings, of_step, only_finding, summary
from kernel_kind_cases import CASES, KernelKindCase

each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)


@each
def test_it_fires_where_a_quarter_of_the_step_is_of_its_kind(case: KernelKindCase) -> None:
    finding = only_finding(case.rule, case.step(10), **case.thresholds)
    # ten kernels of 100 µs in a step of 4 ms
    assert finding.values == {**finding.values, "kernels_per_step": 10.0, **of_step("kernels", 1.0, 4.0)}
    low, likely, high = (*case.shares, 1.0)[:3]
    saving = finding.saving_ns_per_step
    expected = [share * 1_000_000 for share in (low, likely, high)]
    assert [saving.low, saving.likely, saving.high] == pytest.approx(expected, abs=1)
    assert case.says in summary(finding)


@each
def test_it_stays_silent_just_below_the_threshold(case: KernelKindCase) -> None:
    (below, of_below), (at, of_at) = case.silent, case.found
    assert findings(case.rule, case.step(below, of=of_below)) == []
    assert len(findings(case.rule, case.step(at, of=of_at))) == 1


@each
def test_the_number_is_that_of_a_count_by_hand(case: KernelKindCase) -> None:
    """What runs beside other work cannot be saved."""
    assert only_finding(case.rule, case.beside_other_work()).values["kernels_ms"] == pytest.approx(0.5)
