"""Is a saving that nobody could measure told as what was seen, without a price, and behind all that has one?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import draw

from perfdoctor.diagnosis.engine import _in_vain, _noticed, _ranked
from perfdoctor.diagnosis.prediction import NOTICED
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Advice, Finding
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import Rule, load_rules


@pytest.fixture
def run() -> Run:
    """Steps of 1 ms: a thousandth is a µs."""
    run = prepare(draw(kernels="##########", host=["l" + " " * 9], repeat=5))
    assert run.step_ns == 1_000_000
    return run


def finding(low: int, likely: int, high: int) -> Finding:
    return Finding("fp32-matmuls", Saving(low, likely, high), "high", {})


def saved(promised: Finding | Advice) -> tuple[int, int, int]:
    saving = promised.saving_ns_per_step
    return saving.low, saving.likely, saving.high


def test_less_than_a_thousandth_of_the_step_is_no_saving(run):
    assert NOTICED == 0.001
    assert saved(_noticed(finding(549, 549, 999), run)) == (0, 0, 0)
    assert saved(_noticed(finding(999, 1_000, 5_000), run)) == (0, 1_000, 5_000)
    assert saved(_noticed(finding(0, 999, 5_000), run)) == (0, 0, 5_000)
    assert saved(_noticed(finding(1_000, 2_000, 5_000), run)) == (1_000, 2_000, 5_000)


def test_only_a_fix_that_would_take_time_away_can_be_in_vain():
    assert _in_vain(finding(100, 200, 300), finding(0, 0, 0))
    assert not _in_vain(finding(100, 200, 300), finding(0, 0, 5_000)), "it may win something"
    assert not _in_vain(finding(0, 0, 0), finding(0, 0, 0)), "it only informs"


def test_fixes_in_vain_come_behind_what_informs(run):
    rules = load_rules()
    values = {"share": 0.5, "count": 3}
    found = []
    for rule, ns in (("host-work", 5_000), ("fp32-matmuls", 0), ("narrow-pcie-link", 0)):
        plain = Finding(rule, Saving(ns, ns, ns), "high", values)
        found.append((_with_plain_words(rules[rule]), plain))
    assert [advice.rule for advice in _ranked(found, run, {"fp32-matmuls"})] == [
        "host-work", "narrow-pcie-link", "fp32-matmuls",
    ]  # fmt: skip
    assert [advice.rule for advice in _ranked(found, run)] == ["host-work", "fp32-matmuls", "narrow-pcie-link"]


def test_it_has_no_price(run):
    (advice,) = _ranked([(_with_plain_words(load_rules()["fp32-matmuls"]), finding(0, 0, 0))], run, {"fp32-matmuls"})
    assert advice.speedup == (1.0, 1.0, 1.0)
    assert saved(advice) == (0, 0, 0)


def _with_plain_words(rule: Rule) -> Rule:
    return replace(rule, summary="seen", summaries={}, symptom_of=())
