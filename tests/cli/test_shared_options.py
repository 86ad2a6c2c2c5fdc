"""`--range` and `--steps` narrow what is analysed, and every report notes it."""

from __future__ import annotations

import gzip
import json

import perfetto_file
import pytest
from folders import FIXTURES
from typer.testing import CliRunner

from perfdoctor.cli.main import app

ON_CPU = FIXTURES / "cpu-slow-input" / "torch"


def run(*arguments, command="analyze"):
    return CliRunner().invoke(app, [command, *map(str, arguments)])


def diagnosed(*arguments):
    result = run(ON_CPU, *arguments, "--no-html", "--json", "-")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def trace():
    (file,) = ON_CPU.glob("*.json*")
    data = file.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def test_only_the_executions_of_a_range_are_analysed():
    """The range's own durations, from the raw file: a run without a GPU, so they are the window."""
    diagnosis = diagnosed("--range", "Optimizer.step#")
    whole = diagnosed()
    (split,) = diagnosis["time"]
    durations = [
        round(event["dur"] * 1000)
        for event in trace()["traceEvents"]
        if event.get("cat") == "user_annotation" and event["name"].startswith("Optimizer.step#")
    ]
    used = diagnosis["run"]["steps"]["used"]
    assert used == whole["run"]["steps"]["used"]
    assert split["window_ns"] == pytest.approx(sum(durations[-used:]), abs=1000 * used)
    assert split["window_ns"] < whole["time"][0]["window_ns"]
    parts = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    assert sum(split[part] for part in parts) == split["window_ns"]
    assert sum(split["idle_causes_ns"].values()) == split["idle_ns"]


def test_only_chosen_steps_are_analysed():
    whole, part = diagnosed(), diagnosed("--steps", "2..3")
    assert part["run"]["steps"]["used"] == 2
    assert 0 < part["time"][0]["window_ns"] < whole["time"][0]["window_ns"]
    assert diagnosed("--steps", "2")["run"]["steps"]["used"] == 1


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        (("--range", "Optimizer.step#"), "Only the range Optimizer.step#"),
        (("--steps", "2..3"), "Only steps 2 to 3 of "),
        (("--steps", "2"), "Only step 2 of "),
    ],
)
def test_every_report_notes_what_was_analysed(tmp_path, arguments, note):
    page = tmp_path / "page.html"
    text = run(ON_CPU, *arguments, "--html", page)
    assert text.exit_code == 0, text.stderr
    assert note in " ".join(text.stdout.split())
    assert note in page.read_text("utf-8")
    assert note in " ".join(
        run(ON_CPU, *arguments, "--no-html", "--format", "markdown").stdout.replace("\\", "").split()
    )
    assert diagnosed(*arguments)["notes"][0].startswith(note)


def test_conditions_and_questions_hold_for_the_part():
    assert run(ON_CPU, "--no-html", "--quiet", "--fail-on", "input-wait", "--steps", "2..3").exit_code == 3
    assert run(ON_CPU, "--no-html", "--quiet", "--fail-on", "input-wait", "--range", "Optimizer.step#").exit_code == 0
    assert run(ON_CPU, "--no-html", "--quiet", "--fail-on", "input-wait", "--range", "DataLoader").exit_code == 3
    prediction = diagnosed("--steps", "2..3", "--what-if", "input-wait")["prediction"]
    assert prediction["fixed"] == ["input-wait"]
    of_range = diagnosed("--range", "DataLoader", "--what-if", "input-wait")
    (finding,) = [each for each in of_range["findings"] if each["rule"] == "input-wait"]
    step_ns = of_range["time"][0]["step_ns"]
    assert of_range["prediction"]["step_ns"]["likely"] == step_ns - finding["saving_ns_per_step"]["likely"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--range", "nope"), "--range nope: no such range was recorded"),
        (("--range", " "), "--range names nothing"),
        (("--steps", "0"), "--steps 0: that names no steps"),
        (("--steps", "5..3"), "--steps 5..3: that names no steps"),
        (("--steps", "two"), "--steps two: that names no steps"),
        (("--steps", "1..999"), "--steps 1..999: there are "),
        (("--range", "DataLoader", "--what-if", "batch=2x"), "--what-if batch=2x: a range is not replayed"),
    ],
)
def test_a_usage_error_has_two_lines(arguments, what):
    result = run(ON_CPU, *arguments, "--no-html")
    assert result.exit_code == 2
    first, second = result.stderr.splitlines()
    assert first.startswith(f"perfdoctor: {what}")
    assert second.startswith("  → ")
    assert result.stdout == ""


def test_an_unknown_range_names_those_that_were_recorded():
    line = run(ON_CPU, "--range", "nope", "--no-html").stderr.splitlines()[1]
    assert line.startswith("  → Recorded, longest first: ProfilerStep#, ")
    assert "_SingleProcessDataLoaderIter" in line


def test_the_exported_file_shows_the_part(tmp_path):
    target = tmp_path / "a.pftrace"
    assert run(ON_CPU, "--perfetto", target, "--steps", "2..3", command="export").exit_code == 0
    file = perfetto_file.read(target.read_bytes())
    assert [each.name for each in file.on("steps") if each.name != "step left out"] == ["step 2", "step 3"]
    assert run(ON_CPU, "--perfetto", target, "--range", "Optimizer.step#", command="export").exit_code == 0
    file = perfetto_file.read(target.read_bytes())
    (split,) = diagnosed("--range", "Optimizer.step#")["time"]
    executions = file.on("executions")
    assert {each.name.split()[0] for each in executions} == {"execution"}
    assert sum(each.end - each.start for each in executions) == split["window_ns"]
    assert sum(each.end - each.start for each in file.of("window")) == split["window_ns"]


def test_run_takes_a_range_and_refuses_a_wrong_one_before_it_records(tmp_path):
    result = run("-o", tmp_path / "run", "--range", " ", "--", "true", command="run")
    assert result.exit_code == 2
    assert not (tmp_path / "run").exists()
