"""gradient-clipping and parameter-loops: the device waits while Python goes through tensors one by one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from builders import findings, of_step, only_finding, summary
from tensor_loop_cases import LERP, NORM, US, steps

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.vocabulary.rulebook import load_rules


@dataclass(frozen=True)
class Case:
    """`op`: what each turn of its loop asks for, `other`: that of the other rule; `says`: of 40 tensors."""

    rule: str
    op: str
    other: str
    values: tuple[tuple[str, object], ...]
    says: str
    #: Assumed shares, and which share is likely: of 46 launches for 40 gradients 8 are left.
    shares: tuple[tuple[str, float], ...]
    likely: float


CASES = (
    Case(
        "gradient-clipping", NORM, LERP, (("ops_per_step", 40.0), ("tensors", 40)),
        "goes through 40 gradients one by one, 40 ops a step", (("recoverable_share_low", 0.5),), 1 - 8 / 46,
    ),
    Case(
        "parameter-loops", LERP, NORM, (("tensors", 40), ("body", LERP)), f"A loop over 40 tensors ({LERP})",
        (("recoverable_share_low", 0.5), ("recoverable_share_likely", 0.8)), 0.8,
    ),
)  # fmt: skip
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)


@each
def test_it_fires_where_the_device_waits_for_the_loop(case: Case) -> None:
    finding = only_finding(case.rule, steps(40, (case.op,)), **dict(case.shares))
    # 40 ops of 20 µs behind 400 µs: between two of their kernels the device is idle for 10 µs, 39 times
    assert finding.values == {**finding.values, **dict(case.values), **of_step("idle", 0.39, 1.2)}
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == pytest.approx(
        (195 * US, case.likely * 390 * US, 390 * US), abs=1
    )
    assert case.says in summary(finding)


@each
def test_it_claims_no_more_than_launch_bound_has(case: Case) -> None:
    run = prepare(steps(40, (case.op,)))
    whole = run.mean(lambda place: place.idle_ns("launch_bound"))
    assert only_finding(case.rule, run).saving_ns_per_step.high <= whole


@each
def test_it_stays_silent_just_below_either_threshold(case: Case) -> None:
    assert findings(case.rule, steps(19, (case.op,))) == []
    assert len(findings(case.rule, steps(20, (case.op,)))) == 1
    assert findings(case.rule, steps(40, (case.op,), between_us=0.8)) == []  # 2.7 % of the step
    assert len(findings(case.rule, steps(40, (case.op,), between_us=1.0))) == 1  # 3.3 %


@each
def test_it_stays_silent_where_the_device_has_enough_to_do(case: Case) -> None:
    assert findings(case.rule, steps(40, (case.op,), between_us=0)) == []


@each
def test_it_stays_silent_on_other_loops(case: Case) -> None:
    others = ("aten::mm", "aten::copy_", "aten::_foreach_mul_", case.other)
    assert [name for name in others if findings(case.rule, steps(40, (name,)))] == []


@each
def test_it_is_a_symptom_of_launch_bound(case: Case) -> None:
    found = diagnose(steps(40, (case.op,)), list(load_rules().values())).findings
    above = next(finding for finding in found if finding.rule == "launch-bound")
    assert case.rule in [symptom.rule for symptom in above.symptoms]
