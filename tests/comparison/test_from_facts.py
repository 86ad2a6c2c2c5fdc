"""What the history stored is compared as its recording is, and nothing in a row of another's file ends in a traceback."""

from __future__ import annotations

import pytest
from folders import FIXTURES
from history.histories import facts as made

from perfdoctor.cli.analyze import AnalysisRequest, diagnosed, rules_of
from perfdoctor.comparison.compare import compare
from perfdoctor.comparison.from_facts import of_facts
from perfdoctor.comparison.snapshot import of_examination
from perfdoctor.history.facts import facts
from perfdoctor.history.runs import numbers_in
from perfdoctor.history.schema import RUN_COLUMNS
from perfdoctor.vocabulary.rulebook import load_rules

RULES = load_rules()


def of_row(found, **changes):
    row = dict.fromkeys(RUN_COLUMNS) | found.run | changes  # as it is read
    parts = {each["part"]: each["ns"] for each in found.parts}
    return of_facts("stored", row, parts, found.findings, numbers_in(row["step_times_ns"]), RULES)


@pytest.mark.parametrize("name", ["straggler/torch", "cpu-slow-input/torch", "healthy/nsys"])
def test_it_is_the_snapshot_of_the_recording_without_kernels(name):
    path = FIXTURES / name
    examination = diagnosed([path], AnalysisRequest(rules_of([], []), quiet=True))
    whole = of_examination("whole", examination, RULES, [path])
    stored = of_row(facts(examination, [path], source="analyze"))
    assert stored.parts == {part: pytest.approx(ns, rel=1e-3, abs=2) for part, ns in whole.parts.items() if ns}
    assert sum(stored.parts.values()) == pytest.approx(stored.step_ns)
    assert stored.steps.steps_ns == pytest.approx(whole.steps.steps_ns, abs=1)
    assert (stored.steps.scale, stored.unrecorded_ns) == (
        pytest.approx(whole.steps.scale, rel=1e-4),
        whole.unrecorded_ns,
    )
    assert (stored.basis, stored.without_gpu) == (whole.basis, whole.without_gpu)
    assert {each.rule: round(each.likely) for each in stored.findings} == {
        each.rule: round(each.likely) for each in whole.findings
    }
    named = stored.settings.keys() & whole.settings.keys()
    assert {"ranks", "number of GPUs", "recorder", "steps analysed", "steps found by"} <= named
    assert {each: stored.settings[each] for each in named} == {each: whole.settings[each] for each in named}


@pytest.mark.parametrize(
    "changes",
    [
        {"step_times_ns": "[NaN, Infinity, 0, -5]"}, {"step_times_ns": "[]"}, {"step_times_ns": None},
        {"window_ns": 0}, {"contended_share": -3.0}, {"contended_share": 7.0}, {"predicted_fixed": "{"},
        {"predicted_fixed": '["a"]', "predicted_low_ns": 1, "predicted_ns": 2, "predicted_high_ns": 3},
        {"tools": None, "device": None, "part": None, "work": None, "steps_found_by": None}, {"items_per_step": float("inf")},
    ],
)  # fmt: skip
def test_a_row_of_another_file_may_hold_anything(changes):
    usual, odd = of_row(made()), of_row(made(), **changes)
    found = compare([odd], [usual])
    assert sum(each.delta_ns for each in found.causes) == found.difference_ns


def test_a_part_that_only_a_later_perfdoctor_knows_is_idle_time_of_unknown_cause():
    found = made()
    later = type(found)(found.run, (*found.parts, {"part": "quantum_wait", "ns": 3}, {"part": "unknown", "ns": 4}), ())
    stored = of_row(later)
    assert set(stored.parts) == {"compute", "input_wait", "unknown"}
    assert sum(stored.parts.values()) == pytest.approx(stored.step_ns)


def test_a_stored_program_that_failed_is_said_in_the_notes():
    failed = compare([of_row(made(), exit_code=3)], [of_row(made(), exit_code=0)])
    assert "BEFORE: stored ended with exit code 3." in failed.notes
