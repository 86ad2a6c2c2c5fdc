"""Does a finding say where the number of its saving comes from?"""

from __future__ import annotations

import pytest
from builders import draw_steps
from formulas import missed, value_of
from msgspec.structs import replace

from perfdoctor.diagnosis.derivations import derivation
from perfdoctor.diagnosis.predicted_saving import PredictedSaving
from perfdoctor.diagnosis.records import Found
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.derivations import RuleDerivation, read
from perfdoctor.vocabulary.rulebook import SET_BY_USER, Rule, Threshold, load_rules

MS = 1_000_000


@pytest.fixture
def run() -> Run:
    return prepare(draw_steps(kernels="##########"))


def how(**changes) -> RuleDerivation:
    return read(
        {
            "formula": "{lost_ms} × {share_likely}",
            "low": "0",
            "high": "{lost_ms}",
            "source": "A paper, 2020",
            "inputs": {"lost_ms": {"source": "recording", "what": "idle for it, a step"}},
            "situations": {"once": {"formula": "0"}},
            **changes,
        }
    )


def rule(**changes) -> Rule:
    thresholds = {"share_likely": Threshold(0.5, "fraction of it", "Half of it was measured.")}
    return replace(load_rules()["host-syncs"], derivation=how(**changes), thresholds=thresholds)


EXPECTED = Saving(0, 5 * MS, 10 * MS)


def found(of: Rule, saving: Saving = EXPECTED, **changes) -> Found:
    finding = Finding(of.id, saving, "high", {"lost_ms": 10.0, "link_gb_per_second": 20.0}, **changes)
    return Found(of, finding, PredictedSaving(saving, bound_ns=4 * MS))


def test_values_and_thresholds_come_with_units_and_sources(run):
    derived = derivation(found(rule()), run)
    lost, share = derived.inputs
    assert (derived.formula, derived.low, derived.high) == ("lost_ms × share_likely", "0", "lost_ms")
    assert derived.formula_source == "A paper, 2020"
    assert (lost.name, lost.value, lost.unit, lost.source) == ("lost_ms", 10.0, "ms", "recording")
    assert (share.name, share.value, share.source) == ("share_likely", 0.5, "rule")
    assert share.what == "Half of it was measured."
    assert derived.expected == Saving(0, 5 * MS, 10 * MS)
    assert [each.by for each in derived.bounds] == ["physics"]
    assert missed(derived) == {}
    assert missed(replace(derived, expected=Saving(0, 6 * MS, 10 * MS))) == {"lost_ms × share_likely": MS}


def test_a_finding_chooses_the_formula_of_its_situation_or_names_another(run):
    assert derivation(found(rule(), situation="once"), run).formula == "0"
    assert derivation(found(rule(), situation="other"), run).formula == "lost_ms × share_likely"
    assert derivation(found(rule(), situation="other", formula="once"), run).formula == "0"
    assert derivation(found(rule(), situation="once"), run).high == "lost_ms", "what is not said again stays"


def test_what_saves_no_time_needs_no_formula(run):
    assert derivation(found(rule(), Saving(0, 0, 0)), run) is None
    assert derivation(found(replace(rule(), derivation=None)), run) is None


def test_a_threshold_that_the_user_set_is_the_users(run):
    own = replace(rule(), thresholds={"share_likely": Threshold(0.9, "fraction", SET_BY_USER)})
    assert derivation(found(own), run).inputs[1].source == "option"


LINK = {"link_gb_per_second": {"source": "machine", "rate": "host_link", "what": "the link to the host"}}
OF_LINK = {"formula": "8 ÷ {link_gb_per_second}", "high": "8 ÷ {link_gb_per_second}", "inputs": LINK, "situations": {}}


def test_a_rate_of_the_machine_names_gpu_and_data_sheet():
    timeline = draw_steps(kernels="##########", gpu="NVIDIA H100 80GB HBM3", sm_count=132)
    (given,) = derivation(found(rule(**OF_LINK)), prepare(timeline)).inputs
    assert (given.value, given.unit, given.source) == (20.0, "GB/s", "data-sheet")
    assert given.document.startswith("NVIDIA H100 SXM: ")
    own = replace(timeline, user_values=replace(timeline.user_values, peaks={"host_link": 25e9}))
    (given,) = derivation(found(rule(**OF_LINK)), prepare(own)).inputs
    assert (given.source, given.document) == ("option", "--peak host_link")


def test_a_finding_may_say_that_a_value_is_from_elsewhere(run):
    seen = found(rule(**OF_LINK), sources={"link_gb_per_second": "recording"})
    (given,) = derivation(seen, run).inputs
    assert (given.source, given.document) == ("recording", "")
    table = {"link_gb_per_second": {**LINK["link_gb_per_second"], "document": "A table, 2021"}}
    seen = found(rule(**{**OF_LINK, "inputs": table}), sources={"link_gb_per_second": "table"})
    (given,) = derivation(seen, run).inputs
    assert (given.source, given.document) == ("table", "A table, 2021")


def test_a_value_that_is_not_known_here_has_no_number(run):
    seen = found(rule())
    without = replace(seen, finding=replace(seen.finding, values={"lost_ms": float("nan")}))
    assert derivation(without, run).inputs[0].value is None


def test_formulas_are_arithmetic():
    assert value_of("min(a × 2, b ÷ 4) − 1", {"a": 3.0, "b": 20.0}) == 4.0
    with pytest.raises((AssertionError, SyntaxError)):
        value_of("a of b", {"a": 1.0, "b": 2.0})
    with pytest.raises(AssertionError):
        value_of("a.real", {"a": 1.0})
