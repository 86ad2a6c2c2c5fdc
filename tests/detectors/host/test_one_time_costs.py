"""A recording without steps that holds what comes once: named as such, with no saving, and first where it holds no more."""

from __future__ import annotations

from builders import draw, findings, only_finding, summary

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Timeline
from perfdoctor.records.savings import Saving
from perfdoctor.report.words.wording import verdict
from perfdoctor.vocabulary.rulebook import load_rules

LONG = {"c": ("calls", "cudaLaunchKernel"), "p": ("ops", "aten::add")}


def start(loading: int, steady: int = 0) -> Timeline:
    """A kernel is loaded for so many units of 10 µs; then so many launches follow, 50 µs from one to the next."""
    return draw(
        kernels="e" + " " * (loading + 1) + "S" + "  + #" * (4 + steady),
        host=["l" + " " + "c" * loading + " " + "  l  " * (4 + steady), "p" * (loading + 2) + "ppppp" * steady],
        legend=LONG,
        unit_us=10,
    )


def test_a_recording_of_first_calls_says_so_first_and_promises_nothing():
    drawn = start(2_000)
    finding = only_finding("one-time-costs", drawn)
    assert finding.values["lost_ms"] == 20.0
    assert finding.values["name"] == "cudaLaunchKernel"
    assert finding.saving_ns_per_step == Saving(0, 0, 0)
    assert finding.situation == "first_calls"
    diagnosis = diagnose(drawn, list(load_rules().values()))
    assert diagnosis.findings[0].rule == "one-time-costs"
    assert verdict(diagnosis).startswith("This recording holds first calls only: for 20.0 of 20.2 ms")
    assert {"launch-bound", "recompilation"}.isdisjoint(advice.rule for advice in diagnosis.findings)


def test_where_work_is_launched_again_and_again_it_is_a_note():
    finding = only_finding("one-time-costs", start(1_000, steady=150))
    assert finding.situation == ""
    assert "comes once in a program" in summary(finding)
    found = [advice.rule for advice in diagnose(start(1_000, steady=150), list(load_rules().values())).findings]
    assert found.index("launch-bound") < found.index("one-time-costs")


def test_it_stays_silent_just_below_the_threshold():
    assert findings("one-time-costs", start(60, steady=400)) == []


def test_with_steps_the_steps_tell_whether_it_comes_again():
    host = ["l" + " " * 39, " " * 19 + "x" * 21]
    assert findings("one-time-costs", draw(kernels="#" * 20 + " " * 20, host=host, repeat=6, unit_us=1000)) == []


def test_the_model_on_its_way_to_the_gpu_is_a_one_time_cost_and_no_fault():
    drawn = draw(kernels=" " * 60 + "#" * 40, copies="H" * 58, host="C" * 58 + " l", unit_us=1000)
    finding = only_finding("one-time-costs", drawn)
    assert finding.values["lost_ms"] == 58.0
    assert findings("pageable-copies", drawn) == findings("exposed-copies", drawn) == []
    assert len(prepare(drawn).places) == 1


def test_copies_between_kernels_are_judged_as_before():
    drawn = draw(kernels="###" + " " * 60 + "#" * 40, copies="   " + "H" * 58, host="l" + "C" * 58 + " l", unit_us=1000)
    assert findings("one-time-costs", drawn) == []
    assert len(findings("pageable-copies", drawn)) == 1
