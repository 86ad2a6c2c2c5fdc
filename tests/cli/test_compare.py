"""`perfdoctor compare` takes folders, recordings and diagnoses, one or several a side, and exits with the right code."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perfdoctor.cli.main import app

FIXTURES = Path(__file__).parents[2] / "fixtures"
SLOW, FAST = str(FIXTURES / "cpu-slow-input"), str(FIXTURES / "cpu-slow-input-fixed")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def call(*arguments):
    return CliRunner().invoke(app, ["compare", *arguments])


def diagnosis(path, name):
    CliRunner().invoke(app, ["analyze", path, "--json", name, "--no-html", "-q"])
    return name


def test_the_page_and_the_json_are_written_and_the_verdict_is_printed():
    done = call(SLOW, FAST, "--json", "both.json")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("Faster, by 4.4 to 5.7×: a mean step of 27.6 ms became 5.50 ms")
    assert Path("comparison.html").read_text("utf-8").startswith("<!doctype html>\n<!-- perfdoctor report")
    found = json.loads(Path("both.json").read_text("utf-8"))
    assert (found["kind"], found["verdict"], found["causes"][0]["key"]) == ("comparison", "faster", "input_wait")
    assert sum(each["delta_ns"] for each in found["causes"]) == found["difference_ns"]


def test_a_stored_diagnosis_says_the_same_as_its_recording():
    slow, fast = diagnosis(SLOW, "slow.json"), diagnosis(FAST, "fast.json")
    recorded, stored, mixed = (
        json.loads(call(*pair, "--json", "-", "--no-html").stdout)
        for pair in ((SLOW, FAST), (slow, fast), (SLOW, fast))
    )
    assert stored["verdict"] == mixed["verdict"] == recorded["verdict"]
    assert stored["step"]["low"] == pytest.approx(recorded["step"]["low"], abs=0.01)
    parts = [
        {each["key"]: pytest.approx(each["delta_ns"], abs=5) for each in found["causes"]}
        for found in (recorded, stored, mixed)
    ]
    assert {name: each.expected for name, each in parts[1].items()} == parts[0] == {
        name: each.expected for name, each in parts[2].items()
    }  # fmt: skip


def test_several_paths_follow_one_option():
    done = call("--before", SLOW, SLOW, "--after", FAST, FAST, "--json", "-", "--no-html")
    found = json.loads(done.stdout)
    assert (found["step"]["before"]["runs"], found["step"]["after"]["runs"]) == (2, 2)
    assert found["before"] == [SLOW, SLOW]


@pytest.mark.parametrize(
    ("paths", "limit", "code"), [((FAST, SLOW), "5%", 3), ((FAST, SLOW), "900%", 0), ((SLOW, FAST), "0%", 0)]
)
def test_fail_above_exits_with_3_if_the_whole_interval_lies_above(paths, limit, code):
    assert call(*paths, "--no-html", "-q", "--fail-above", limit).exit_code == code


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((SLOW,), 2, "takes two recordings"),
        (("--before", SLOW), 2, "give BEFORE and AFTER"),
        ((SLOW, FAST, "--fail-above", "much"), 2, "that is no percentage"),
        ((SLOW, str(FIXTURES / "healthy")), 1, "the one is on a CPU alone, the other on a GPU"),
        ((SLOW, "none"), 1, "none"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(arguments, code, said):
    done = call(*arguments, "--no-html")
    assert done.exit_code == code
    assert said in done.stderr


def test_markdown_is_for_a_pull_request():
    said = call(SLOW, FAST, "--format", "markdown", "--no-html").stdout
    assert "**Faster, by 4.4 to 5.7×: a mean step" in said
    assert "| idle: waiting for data (input-bound) | 22.7 ms | 1.10 ms |" in said


def bad_files():
    whole = json.loads(Path(diagnosis(SLOW, "whole.json")).read_text("utf-8"))
    text = json.dumps(whole, indent=2)
    yield "cut off", text[: len(text) // 2]
    yield "other format", json.dumps({**whole, "format": 99})
    yield "no kernels", json.dumps({name: value for name, value in whole.items() if name != "kernels"})
    yield "no numbers", text.replace('"compute_ns": ', '"compute_ns": "</script>[/]", "was": ')
    yield "no steps", json.dumps({**whole, "run": {**whole["run"], "steps": {"used": 3, "durations_ns": [None, "x"]}}})
    yield "no time", json.dumps({**whole, "time": []})
    yield "a comparison", json.dumps({"format": 1, "perfdoctor": "0.1.0", "kind": "comparison", "before": []})
    yield "a picture", "\x89PNG\r\n"
    yield "empty", ""


def test_bad_input_is_one_line_what_and_one_line_what_to_do():
    for name, text in bad_files():
        Path("bad.json").write_text(text, "utf-8")
        for arguments in ((SLOW, "bad.json"), ("bad.json", SLOW), ("--scaling", SLOW, "2=bad.json")):
            done = call(*arguments, "--no-html")
            assert done.exit_code == 1, (name, done.exception)
            what, do = done.stderr.strip().splitlines()
            assert what.startswith("perfdoctor: "), name
            assert do.startswith("  → "), name
            assert "bad.json" in what


def test_a_recording_that_breaks_off_is_compared_and_said_to():
    cut = gzip.decompress((FIXTURES / "healthy" / "torch" / "rank0.pt.trace.json.gz").read_bytes())
    Path("cut.json").write_bytes(cut[: len(cut) * 2 // 3])
    said = call(str(FIXTURES / "healthy" / "torch"), "cut.json", "--no-html").stdout
    assert "AFTER: `cut.json` is cut off after" in said


def test_recordings_elsewhere_are_fetched(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path("cache").absolute()))
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for side, folder in (("before", SLOW), ("after", FAST)):
        for file in Path(folder).rglob("*"):
            if file.is_file():
                store.pipe(f"/{side}/{file.relative_to(folder)}", file.read_bytes())
    done = call("memory://before/", "memory://after/", "--json", "-", "--no-html", "--jobs", "1")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "faster"


def test_a_page_that_nobody_asked_for_costs_a_line_where_it_cannot_be_written(monkeypatch):
    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("perfdoctor.cli.report_files.write", denied)
    done = call(SLOW, FAST)
    assert (done.exit_code, done.stderr) == (0, "perfdoctor: no report written: comparison.html: Permission denied\n")
    asked = call(SLOW, FAST, "--html", "mine.html")
    assert asked.exit_code == 1
    assert "--html mine.html cannot be written: Permission denied" in asked.stderr


def test_one_recording_on_both_sides_is_said():
    said = "".join(call(SLOW, SLOW, "--no-html").stdout.split())
    assert f"Onbothsides:{SLOW}." in said
    assert "another program" not in said


def test_one_that_is_missing_is_said_in_the_singular():
    assert "compare takes two recordings, 1 is given" in call(SLOW).stderr


def test_another_number_of_ranks_fails_no_gate_and_is_said_first():
    sides = (str(FIXTURES / "healthy" / "torch"), str(FIXTURES / "straggler" / "torch"), "--no-html")
    done = call(*sides, "--fail-above", "5%")
    assert (done.exit_code, done.stdout.startswith("Not comparable: BEFORE ran with 1 rank, AFTER with 4")) == (1, True)
    assert "--fail-above: the two sides are not comparable" in done.stderr
    assert call(*sides).exit_code == 0
    assert call(*sides, "--anyway", "--fail-above", "5%").exit_code == 3
