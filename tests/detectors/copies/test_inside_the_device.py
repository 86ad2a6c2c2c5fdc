"""memset-heavy and on-device-copies: the GPU's own memory is filled, or copied within, and nothing runs beside."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from builders import findings, only_finding, summary
from exposed_copy_cases import MS, assert_a_quarter_is_exposed, exposed_step

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import Timeline
from perfdoctor.vocabulary.rulebook import load_rules


@dataclass(frozen=True)
class Case:
    """`char` draws its copies, `other` those of another direction; `number`: what the rule counts. `likely_ms`: of 10."""

    rule: str
    char: str
    other: str
    number: str
    likely_ms: float

    def step(self, exposed: int, char: str = "", *, of: int = 40, **more: object) -> Timeline:
        """`exposed` ms of it in front of each step's compute."""
        return exposed_step(exposed, char or self.char, of=of, **more)


CASES = (
    Case("memset-heavy", "m", "x", "memsets_per_step", 0),  # nobody knows who asked for them
    Case("on-device-copies", "x", "h", "copies_per_step", 5),
)
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)


@each
def test_it_fires_where_nothing_runs_beside(case: Case) -> None:
    finding = only_finding(case.rule, case.step(10))
    assert_a_quarter_is_exposed(finding, case.number, likely_ms=case.likely_ms)
    assert "250.0 MB" in summary(finding)


@each
def test_the_op_that_launched_it_is_named(case: Case) -> None:
    host = {"host": ["ll", "o"], "legend": {"o": ("ops", "aten::an_op")}, "host_ahead": 0, "launched_us_before": None}
    table = only_finding(case.rule, case.step(10, **host)).evidence[1]
    assert table.rows[0][:3] == ("aten::an_op", 1.0, 10 * MS)


@each
def test_it_stays_silent_just_below_the_threshold(case: Case) -> None:
    assert findings(case.rule, case.step(1, of=40)) == []
    assert len(findings(case.rule, case.step(1, of=33))) == 1


@each
def test_it_stays_silent_where_a_kernel_runs_beside(case: Case) -> None:
    assert findings(case.rule, case.step(10, kernels="#" * 40)) == []


@each
def test_it_stays_silent_on_other_directions(case: Case) -> None:
    assert findings(case.rule, case.step(10, case.other)) == []


@each
def test_it_is_a_symptom_of_exposed_copies(case: Case) -> None:
    found = diagnose(case.step(10, launched_us_before=None), list(load_rules().values())).findings
    above = next(finding for finding in found if finding.rule == "exposed-copies")
    assert case.rule in [symptom.rule for symptom in above.symptoms]
    assert above.saving_ns_per_step.high == 6 * 10 * MS  # without calls no steps are found: all six
