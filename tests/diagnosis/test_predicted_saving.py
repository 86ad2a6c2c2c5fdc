"""Are all limits of a saving applied, and is one that nobody could measure shown without a number, behind the others?"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import draw, only_finding
from msgspec.structs import replace

from perfdoctor.diagnosis.calibration import NOISE_SHARE, SavingSpread
from perfdoctor.diagnosis.predicted_saving import PredictedSaving, predicted_saving
from perfdoctor.diagnosis.ranking import agreeing, ranked
from perfdoctor.diagnosis.records import Found
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.derivations import BOUNDS
from perfdoctor.vocabulary.rulebook import load_rules


@pytest.fixture
def run() -> Run:
    """Steps of 1 ms: a thousandth is a µs."""
    run = prepare(draw(kernels="##########", host=["l" + " " * 9], repeat=5))
    assert run.step_ns == 1_000_000
    return run


def found(rule: str, expected: Saving, run: Run, **limits) -> Found:
    """A finding with these limits, of a rule with plain words and no causes."""
    finding = Finding(rule, expected, "high", {"share": 0.5, "count": 3})
    plain = replace(load_rules()[rule], summary="seen", summaries={}, symptom_of=())
    return Found(plain, finding, replace(predicted_saving(plain, finding, run, None), **limits))


def test_nothing_limits_a_saving_unless_it_is_said():
    assert PredictedSaving(Saving(100, 200, 300)).ns == Saving(100, 200, 300)


def test_less_than_a_thousandth_of_the_step_is_no_saving(run):
    def left(*expected: int) -> Saving:
        return found("host-work", Saving(*expected), run).saving.ns

    assert NOISE_SHARE == 0.001
    assert left(549, 549, 999) == Saving(0, 0, 0)
    assert left(999, 1_000, 5_000) == Saving(0, 1_000, 5_000)
    assert left(0, 999, 5_000) == Saving(0, 0, 5_000)
    assert left(1_000, 2_000, 5_000) == Saving(1_000, 2_000, 5_000)


def test_a_loader_hides_what_it_hides_of_all_but_the_most():
    assert PredictedSaving(Saving(100, 200, 300), unhidden_share=0.25).ns == Saving(25, 50, 300)


def test_a_host_gives_no_more_than_it_has_to_spare():
    assert PredictedSaving(Saving(100, 200, 300), host_spare_ns=120).ns == Saving(100, 120, 300)


def test_a_replay_knows_loader_and_host():
    replayed = Saving(80, 90, 95)
    saving = PredictedSaving(Saving(100, 200, 300), replayed=replayed, unhidden_share=0.25, host_spare_ns=10)
    assert saving.ns == replayed


def test_at_most_a_late_rank_is_late_in_no_step(run):
    """A replay takes out what it has more to do than the others, and its steps still differ from theirs."""
    rules, replayed = load_rules(), Saving(30_000, 60_000, 60_000)
    replay = SimpleNamespace(gives_saving=lambda *_: True, fix=lambda *_: "a fix", saving=lambda _: replayed)

    def of(rule: str) -> Saving:
        return predicted_saving(
            rules[rule], Finding(rule, Saving(50_000, 100_000, 120_000), "high", {}), run, replay
        ).ns

    assert of("rank-skew") == Saving(30_000, 60_000, 100_000)
    assert of("small-collectives") == replayed


def test_what_recording_cost_is_inferred_and_at_most_it_was_a_slower_machine():
    saving = PredictedSaving(Saving(100, 200, 300), real_share=0.4, most_real_share=0.6)
    assert saving.ns == Saving(40, 80, 180)


def test_measured_spreads_go_no_further_than_what_the_fix_is_about():
    spread = SavingSpread(0.5, 2.0)
    saving = PredictedSaving(Saving(90, 100, 110), step_ns=1_000, spread=spread)
    assert saving.ns == Saving(50, 100, 200)
    assert replace(saving, about_ns=150).ns == Saving(50, 100, 150)
    assert replace(saving, about_ns=80).ns == Saving(50, 100, 110), "a rule's own highest saving stays"


def test_where_nothing_is_replayed_a_spread_goes_no_further_than_what_the_detector_says_at_most():
    run = prepare(draw(kernels="#" * 15 + " " * 10 + "+" * 15, unit_us=1000))
    finding = only_finding("idle-unknown", run)
    saving = predicted_saving(load_rules()["idle-unknown"], finding, run, None)
    assert replace(saving, spread=SavingSpread(0.5, 2.0)).ns == finding.saving_ns_per_step


def test_no_fix_saves_more_than_physics_allow():
    saving = PredictedSaving(Saving(100, 200, 300), bound_ns=150)
    assert saving.ns == replace(saving, replayed=Saving(100, 200, 300)).ns == Saving(100, 150, 150)


def test_only_a_fix_that_would_take_time_away_can_be_in_vain():
    assert PredictedSaving(Saving(100, 200, 300), noise_ns=301).is_in_vain
    assert not PredictedSaving(Saving(100, 200, 5_000), noise_ns=301).is_in_vain, "it may save something"
    assert not PredictedSaving(Saving(0, 0, 0), noise_ns=301).is_in_vain, "it only informs"


def test_fixes_in_vain_come_behind_what_informs(run):
    host = found("host-work", Saving(5_000, 5_000, 5_000), run)
    link = found("narrow-pcie-link", Saving(0, 0, 0), run)
    vain = found("fp32-matmuls", Saving(100, 200, 300), run, host_spare_ns=0, noise_ns=301)
    informs = found("fp32-matmuls", Saving(0, 0, 0), run)
    assert [each.rule for each in ranked([vain, link, host], run)] == ["host-work", "narrow-pcie-link", "fp32-matmuls"]
    assert [each.rule for each in ranked([informs, link, host], run)] == [
        "host-work",
        "fp32-matmuls",
        "narrow-pcie-link",
    ]


def test_what_is_noise_has_no_number(run):
    (advice,) = ranked([found("fp32-matmuls", Saving(1, 2, 3), run)], run)
    assert advice.speedup == (1.0, 1.0, 1.0)
    assert advice.saving_ns_per_step == Saving(0, 0, 0)


def test_what_limits_a_saving_is_named_with_what_it_leaves():
    """In the order in which it is applied; what changes nothing is not named."""
    saving = PredictedSaving(
        Saving(100, 200, 300),
        bound_ns=250,
        unhidden_share=0.5,
        host_spare_ns=80,
        step_ns=10_000,
        real_share=0.5,
        most_real_share=0.5,
    )
    assert [(each.by, each.left) for each in saving.bounds] == [
        ("loader", Saving(50, 100, 300)),
        ("host", Saving(50, 80, 300)),
        ("physics", Saving(50, 80, 250)),
        ("recorder", Saving(25, 40, 125)),
    ]
    assert saving.bounds[-1].left == saving.ns
    assert set(BOUNDS) >= {each.by for each in saving.bounds}
    assert PredictedSaving(Saving(100, 200, 300)).bounds == ()
    assert [each.by for each in replace(saving, replayed=Saving(0, 5, 90), noise_ns=6).bounds] == [
        "replay",
        "recorder",
        "noise",
    ]
    assert [each.by for each in PredictedSaving(Saving(1, 2, 9), step_ns=5).bounds] == ["step"]
    (contention,) = PredictedSaving(Saving(100, 200, 300), contended_share=0.3).bounds
    assert (contention.by, contention.left) == ("contention", Saving(70, 200, 300))


def test_every_bound_that_is_applied_has_words():
    source = Path(inspect.getfile(PredictedSaving)).read_text("utf-8")
    assert set(re.findall(r'Bound\("(\w+)"', source)) == set(BOUNDS)


def test_a_cause_saves_no_less_than_its_symptoms_as_far_as_both_are_about_the_same_time(run):
    def both(symptom_ns: Saving, confidence: str = "high") -> tuple[Found, Found]:
        expected = {"exposed-communication": Saving(1_000, 20_000, 50_000), "slow-links": symptom_ns}
        cause, symptom = (found(rule, ns, run, host_spare_ns=None) for rule, ns in expected.items())
        finding = replace(symptom.finding, confidence=confidence, symptom_of=("exposed-communication",))
        above, below = agreeing([cause, replace(symptom, finding=finding)])
        assert below.saving.ns == symptom_ns
        return above, below

    above, _ = both(Saving(10_000, 30_000, 40_000))
    assert above.saving.ns == Saving(10_000, 30_000, 50_000)
    assert above.saving.own == Saving(1_000, 20_000, 50_000)
    assert [each.by for each in above.saving.bounds] == ["symptoms"]
    assert both(Saving(0, 70_000, 90_000))[0].saving.ns == Saving(1_000, 50_000, 50_000)
    assert both(Saving(0, 5_000, 9_000))[0].saving.bounds == ()
    # what nobody is sure of may be about something else
    assert both(Saving(10_000, 30_000, 40_000), "low")[0].saving.ns == above.saving.own
