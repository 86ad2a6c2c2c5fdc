"""Is a changed number of a diagnosis seen, and a changed word let through? `benchmarks/same_diagnosis.py`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import same_diagnosis
from differences import Renamed, differences, renamed
from folders import ROOT


def found(old, new, names=None):
    return [(each.kind, each.key, each.old, each.new) for each in differences(old, new, names)]


def finding(rule, likely, **more):
    return {"rule": rule, "saving_ns_per_step": {"likely": likely}, **more}


def test_equal_reports_do_not_differ():
    report = {"findings": [finding("input-wait", 3, title="…")], "notes": ["a"], "prediction": None}
    assert found(report, report) == []


def test_a_nanosecond_differs():
    old, new = {"time": [{"idle_ns": 1_000_000_000}]}, {"time": [{"idle_ns": 1_000_000_001}]}
    assert found(old, new) == [("number", "time[0].idle_ns", 1_000_000_000, 1_000_000_001)]


def test_a_whole_number_is_no_fraction():
    assert found({"count": 1}, {"count": 1.0}) == [("number", "count", 1, 1.0)]


def test_a_key_that_is_gone_or_new_differs():
    assert found({"old": 1}, {"new": 1}) == [
        ("number", "old", 1, "(missing)"),
        ("number", "new", "(missing)", 1),
    ]


def test_findings_in_another_order_differ_once():
    one, other = finding("input-wait", 2), finding("host-syncs", 1)
    assert found({"findings": [one, other]}, {"findings": [other, one]}) == [
        ("number", "findings[].rule", ["input-wait", "host-syncs"], ["host-syncs", "input-wait"])
    ]


def test_findings_are_held_against_those_of_their_rule():
    old = {"findings": [finding("input-wait", 2), finding("host-syncs", 1)]}
    new = {"findings": [finding("host-syncs", 7)]}
    assert found(old, new) == [
        ("number", "findings[].rule", ["input-wait", "host-syncs"], ["host-syncs"]),
        ("number", "findings[host-syncs].saving_ns_per_step.likely", 1, 7),
    ]


def test_other_rows_are_held_against_each_other_by_their_place():
    assert found({"rows": [1, 2, 3]}, {"rows": [1, 5]}) == [
        ("number", "rows[]", "3 entries", "2 entries"),
        ("number", "rows[1]", 2, 5),
    ]


def test_words_may_differ():
    assert found({"title": "It is so"}, {"title": "It is known"}) == [("words", "title", "It is so", "It is known")]
    assert found({"notes": ["a", "b"]}, {"notes": ["a", "c"]}) == [("words", "notes[1]", "b", "c")]


def test_words_that_name_another_number_are_a_kind_of_their_own():
    kinds = [kind for kind, *_ in found({"summary": "3 of 12 ms wait"}, {"summary": "3 of 13 ms wait"})]
    assert kinds == ["numbers in words"]


def test_a_note_that_is_gone_is_reported():
    assert found({"notes": ["a", "b"]}, {"notes": ["a"]}) == [("numbers in words", "notes[]", ["a", "b"], ["a"])]


def test_what_was_renamed_on_purpose_does_not_differ(tmp_path):
    file = tmp_path / "renamed.toml"
    renames = [
        "[keys]",
        'gauge = "meter"',
        "[values]",
        '"not seen" = "not known"',
        "[patterns]",
        "'step (\\d) of those' = '\\1st step'",
    ]
    file.write_text("\n".join(renames), "utf-8")
    old = {"gauge": ["not seen", "step 1 of those"], "title": "not seen"}
    new = {"meter": ["not known", "1st step"], "title": "not seen"}
    assert found(old, new, renamed(file)) == []
    assert found(old, new, Renamed())


def test_a_refusal_is_held_against_a_refusal():
    refused = {"refused": {"type": "PerfdoctorError", "what": "a.json is empty", "do": "Record again."}}
    raised = {"raised": {"type": "KeyError", "error": "'a'"}}
    other = {"refused": {**refused["refused"], "what": "a.json holds nothing"}}
    assert {kind for kind, *_ in found(refused, other)} == {"words"}
    assert {kind for kind, *_ in found(refused, raised)} == {"number"}


def test_files_that_differ_in_numbers_alone_are_the_ranks_of_one_job(tmp_path):
    for name in ("job/rank0.json", "job/rank11.json", "mixed/one.json", "mixed/two.json", "single/rank0.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    cases = [case.name for case in same_diagnosis.recording_cases(tmp_path)]
    assert cases == [
        "job", "job/rank0.json", "job/rank11.json", "mixed/one.json", "mixed/two.json", "single/rank0.json",
    ]  # fmt: skip


# --- two checkouts ---------------------------------------------------------------------------------------------------


def compared(monkeypatch, capfd, *arguments) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["same_diagnosis.py", *map(str, arguments), "--only", "fixtures/healthy/torch"])
    return same_diagnosis.main(), capfd.readouterr().out


@pytest.fixture
def changed(tmp_path) -> Path:
    """A checkout that counts one rank too many."""
    for folder in ("src", "rules"):
        shutil.copytree(ROOT / folder, tmp_path / "changed" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "changed" / "src" / "perfdoctor" / "report" / "json_report.py"
    text = file.read_text("utf-8")
    assert text.count("world_size=diagnosis.world_size,") == 1
    file.write_text(text.replace("=diagnosis.world_size,", "=diagnosis.world_size + 1,"), "utf-8")
    return tmp_path / "changed"


def test_code_is_held_against_itself_in_silence(monkeypatch, capfd, tmp_path):
    keep = tmp_path / "kept"
    for _ in range(2):  # the second time with the old side's answers of the first
        code, printed = compared(monkeypatch, capfd, ROOT, ROOT, "--keep", keep)
        assert code == 0
        assert printed.strip().splitlines()[0] == (
            "Diagnoses: 1. Numbers differ: 0, in 0 of them. Words differ: 0, of which 0 name other numbers."
        )


def test_changed_code_is_seen(monkeypatch, capfd, changed):
    code, printed = compared(monkeypatch, capfd, ROOT, changed)
    assert code == 1
    assert "fixtures/healthy/torch: run.world_size: 1 → 2\n" in printed
    assert "Words differ: 0" in printed
