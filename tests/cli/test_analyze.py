"""`perfdoctor analyze` writes the right output to the right place, and exits with the right code."""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path

import pytest
from msgspec.structs import replace
from report.samples import HEALTHY, INPUT_BOUND, POISONED
from typer.testing import CliRunner

from perfdoctor.cli import report_files
from perfdoctor.cli.main import app
from perfdoctor.diagnosis.records import Examination
from perfdoctor.errors import PerfdoctorError
from perfdoctor.records.views import Views
from perfdoctor.system.processors import JOBS
from perfdoctor.vocabulary import rulebook

VERDICT = "Training waits for data (input-bound). Fixing it takes 61 %"
RULES = ("input-wait", "host-syncs", "pageable-copies", "rank-skew", "launch-bound", "device-throttling")


def rule(name):
    threshold = rulebook.Threshold(0.05, "fraction of step time", "Below it is negligible.")
    fix = rulebook.RuleFix("Do it", "do(it)", "minutes", changes_numerics=False)
    return rulebook.Rule(
        id=name,
        title=f"The title of {name}",
        category="input",
        since="0.1.0",
        status="stable",
        needs=("kernels",),
        summary="",
        why="It costs time.",
        not_a_problem_when="Never.",
        references=("https://example.org",),
        thresholds={"min_share": threshold},
        fixes=(fix,),
        summaries={},
    )


class Doctor:
    """Replaces reading and diagnosing; stores its arguments."""

    def __init__(self):
        self.diagnosis, self.error, self.paths, self.rules, self.what_if = INPUT_BOUND, None, None, None, None

    def read_run(self, paths, progress, **asked):
        self.paths, self.asked = list(paths), asked
        progress("reading it")
        if self.error:
            raise self.error
        return "run"

    def examine(self, run, rules, what_if=()):
        assert run == "run"
        self.what_if = what_if
        self.rules = [rule.id for rule in rules]
        return Examination(run, self.diagnosis, ())


@pytest.fixture
def doctor(monkeypatch, tmp_path):
    stand_in = Doctor()
    stubs = {name: types.ModuleType(name) for name in ("scale.read", "diagnosis.engine", "views.build")}
    stubs["scale.read"].read_run, stubs["diagnosis.engine"].examine = stand_in.read_run, stand_in.examine
    stubs["views.build"].views = lambda run, diagnosis: Views()
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, f"perfdoctor.{name}", stub)
    monkeypatch.setattr(rulebook, "load_rules", lambda: {name: rule(name) for name in RULES})
    monkeypatch.chdir(tmp_path)
    Path("trace.json").write_text("{}")
    return stand_in


def run(*arguments):
    return CliRunner().invoke(app, ["analyze", *map(str, arguments)])


def test_the_verdict_comes_first_and_the_report_s_path_last(doctor):
    result = run("trace.json")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(VERDICT)
    assert result.stdout.splitlines()[-1] == "Report: trace.perfdoctor.html"
    assert b"<!-- perfdoctor report" in Path("trace.perfdoctor.html").read_bytes()
    assert result.stderr == ""
    assert doctor.paths == [Path("trace.json")]
    assert doctor.rules == list(RULES)


@pytest.mark.parametrize("how", [("--json", "-"), ("--format", "json")])
def test_json_on_standard_output_stays_parsable(doctor, how):
    result = run("trace.json", *how)
    assert json.loads(result.stdout)["findings"][0]["rule"] == "input-wait"
    assert result.stderr.splitlines()[-1] == "Report: trace.perfdoctor.html"


def test_json_goes_beside_the_text_when_a_file_is_named(doctor):
    result = run("trace.json", "--json", "out.json", "--no-html")
    assert result.stdout.startswith(VERDICT)
    assert json.loads(Path("out.json").read_text("utf-8"))["format"] == 1
    assert run("trace.json", "--json", "out.json", "--no-html").exit_code == 0
    assert not list(Path().glob("*.html"))
    assert not list(Path().glob("*.tmp"))


def test_markdown_keeps_the_path_off_standard_output(doctor):
    result = run("trace.json", "--format", "markdown")
    assert result.stdout.startswith("**Training waits")
    assert result.stderr.splitlines() == ["Report: trace.perfdoctor.html"]


def test_quiet_prints_only_the_verdict(doctor):
    result = run("trace.json", "--quiet", "--no-html")
    assert result.stdout.startswith(VERDICT)
    assert len(result.stdout.splitlines()) == 1


def test_verbose_prints_progress_on_standard_error(doctor):
    assert "reading it" in run("trace.json", "--verbose").stderr


def test_all_shows_more_than_five(doctor):
    doctor.diagnosis = POISONED
    assert "rule-8" not in run("trace.json").stdout
    assert "rule-8" in run("trace.json", "--all").stdout


def test_rule_and_ignore_choose_what_is_checked(doctor):
    run("trace.json", "--rule", "rank-skew", "--rule", "input-wait", "--ignore", "input-wait")
    assert doctor.rules == ["rank-skew"]


def test_without_what_if_there_are_no_questions(doctor):
    assert run("trace.json").exit_code == 0
    assert doctor.what_if == ()


@pytest.mark.parametrize("option", ["--rule", "--ignore", "--fail-on"])
def test_an_unknown_rule_is_a_usage_error_with_near_matches(doctor, option):
    result = run("trace.json", option, "input-wiat")
    assert result.exit_code == 2
    assert "Did you mean input-wait" in result.stderr
    assert doctor.paths is None


@pytest.mark.parametrize(
    "arguments",
    [("--html", "a.html", "--no-html"), ("--json", "-", "--format", "markdown"), ("--format", "pdf"), ("--nonsense",)],
)
def test_options_that_contradict_each_other_are_a_usage_error(doctor, arguments):
    assert run("trace.json", *arguments).exit_code == 2


def test_thresholds_come_from_the_project_here(doctor):
    Path("pyproject.toml").write_text("[tool.perfdoctor.thresholds.input-wait]\nmin_shar = 1\n")
    result = run("trace.json")
    assert result.exit_code == 1
    assert "min_share" in result.stderr


@pytest.mark.parametrize(
    ("condition", "code"), [("any", 3), ("input-wait", 3), ("pageable-copies", 3), ("launch-bound", 0)]
)
def test_fail_on_meets_findings_and_their_symptoms(doctor, condition, code):
    assert run("trace.json", "--fail-on", condition).exit_code == code


def test_fail_on_any_lets_a_healthy_run_pass(doctor):
    doctor.diagnosis = HEALTHY
    assert run("trace.json", "--fail-on", "any").exit_code == 0


def test_fail_on_a_rule_that_was_not_checked_prints_so(doctor):
    result = run("trace.json", "--fail-on", "rank-skew")
    assert result.exit_code == 0
    assert "--fail-on rank-skew: the rule was not checked: it lacks collectives." in result.stderr


def test_an_error_of_the_user_s_is_two_lines_and_no_traceback(doctor):
    doctor.error = PerfdoctorError("trace.json is empty", do="Record it again.")
    result = run("trace.json")
    assert result.exit_code == 1
    assert result.stderr == "perfdoctor: trace.json is empty\n  → Record it again.\n"
    assert result.stdout == ""


def test_an_interrupt_ends_quietly_with_its_signal_s_code(doctor):
    doctor.error = KeyboardInterrupt()
    result = run("trace.json")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")


def test_a_bug_of_ours_keeps_its_traceback(doctor):
    doctor.error = ZeroDivisionError("ours")
    assert isinstance(run("trace.json").exception, ZeroDivisionError)


# --- where reports go ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("rank0.pt.trace.json.gz", "rank0"),
        ("profile.nsys-rep", "profile"),
        ("a.b.sqlite", "a.b"),
        (".json", ".json"),
        ("run", "run"),
    ],
)
def test_the_report_is_named_after_the_recording(name, stem, tmp_path):
    assert report_files.default_html([tmp_path / name]) == Path(f"{stem}.perfdoctor.html")


def test_folders_give_the_report_its_name_or_its_place(doctor, tmp_path):
    traces, run_folder = tmp_path / "traces", tmp_path / "monday"
    traces.mkdir()
    run_folder.mkdir()
    (run_folder / "run.json").write_text("{}")
    assert report_files.default_html([traces]) == Path("traces.perfdoctor.html")
    assert report_files.default_html([run_folder]) == run_folder / "report.html"
    assert report_files.default_html([Path()]) == Path(f"{tmp_path.name}.perfdoctor.html")


def test_a_report_of_ours_is_written_anew(doctor):
    run("trace.json")
    assert run("trace.json").stdout.splitlines()[-1] == "Report: trace.perfdoctor.html"
    assert [path.name for path in Path().glob("*.html")] == ["trace.perfdoctor.html"]


@pytest.mark.parametrize("option", [(), ("--html", "trace.perfdoctor.html")])
def test_another_file_is_never_overwritten(doctor, option):
    Path("trace.perfdoctor.html").write_text("<p>mine</p>")
    result = run("trace.json", *option)
    assert Path("trace.perfdoctor.html").read_text() == "<p>mine</p>"
    assert "trace.perfdoctor.html was not written by perfdoctor and is kept." in result.stdout
    assert result.stdout.splitlines()[-1] == "Report: trace-2.perfdoctor.html"


def test_a_recording_is_never_overwritten(doctor):
    result = run("trace.json", "--json", "trace.json")
    assert result.exit_code == 1
    assert "is one of the recordings" in result.stderr
    assert doctor.paths is None
    run("trace.json", "--html", "trace.json")
    assert Path("trace.json").read_text() == "{}"
    assert Path("trace-2.json").exists()


def test_json_over_a_file_that_is_no_diagnosis_is_refused_before_the_work(doctor):
    Path("notes.json").write_text('{"mine": 1}')
    result = run("trace.json", "--json", "notes.json")
    assert result.exit_code == 1
    assert doctor.paths is None
    assert Path("notes.json").read_text() == '{"mine": 1}'


def test_where_the_default_place_cannot_be_written_the_rest_goes_on(doctor, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(report_files, "write", refuse)
    result = run("trace.json")
    assert result.exit_code == 0
    assert result.stdout.startswith(VERDICT)
    assert result.stderr == "perfdoctor: no report written: trace.perfdoctor.html: Permission denied\n"


def test_a_named_place_that_cannot_be_written_is_an_error_after_the_diagnosis(doctor):
    result = run("trace.json", "--html", "missing/report.html")
    assert result.exit_code == 1
    assert result.stdout.startswith(VERDICT)
    assert "missing/report.html cannot be written: No such file or directory" in result.stderr


def test_a_device_is_written_to_directly(doctor):
    assert run("trace.json", "--html", os.devnull).exit_code == 0
    assert not Path(os.devnull).is_file()


def test_notes_of_a_rule_that_failed_do_not_hide(doctor):
    doctor.diagnosis = replace(INPUT_BOUND, outcomes=POISONED.outcomes)
    assert "recompilation failed" in run("trace.json").stdout


def test_jobs_and_cluster_say_who_does_the_work(doctor, monkeypatch):
    monkeypatch.setenv(JOBS, "")
    assert run("trace.json", "--no-html", "--jobs", "3", "--cluster", "local[2]").exit_code == 0
    assert os.environ[JOBS] == "3"
    assert doctor.asked["cluster"] == "local[2]"


@pytest.mark.parametrize("option", [("--jobs", "0"), ("--cluster", "head:8786")])
def test_numbers_and_names_that_cannot_be_are_wrong_usage(doctor, option):
    assert run("trace.json", *option).exit_code == 2
    assert doctor.paths is None
