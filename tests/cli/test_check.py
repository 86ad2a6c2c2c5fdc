"""`perfdoctor check`: what is compared with what, how it ends, and what is written where."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from folders import FIXTURES
from slowed import record
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.errors import PerfdoctorError
from perfdoctor.history.comparable import refuse_others

HEALTHY = str(FIXTURES / "healthy")


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """Runs of one training: two as it is, and one each that is slower by 3 and by 10 %."""
    folder = tmp_path_factory.mktemp("slowed")
    for name, slower, seed in (("a", 0, 4), ("b", 0, 2), ("three", 0.03, 5), ("ten", 0.10, 3)):
        record(folder / name, slower, seed)
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch, recorded):
    """A project with these recordings, and a history of run `a`, pinned as `main`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(tmp_path / "history.db"))
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    for folder in recorded.iterdir():
        shutil.copytree(folder, tmp_path / folder.name)
    pin("a")
    return tmp_path


def pin(*names, as_="main"):
    for name in names:
        assert call("analyze", name, "--save", "--no-html", "-q").exit_code == 0
    ids = call("history", "--limit", len(names), "-q").stdout.split()
    assert call("history", "pin", as_, *ids).exit_code == 0


@pytest.mark.parametrize(
    ("name", "limit", "code", "decision"),
    [
        ("b", "3%", 0, "no change"),
        ("three", "3%", 0, "regression"),
        ("three", "0.5%", 3, "regression"),
        ("ten", "3%", 3, "regression"),
        ("ten", "20%", 0, "regression"),
        ("b", "1%", 0, "too noisy"),
    ],
)
def test_planted_slowdowns_are_decided_and_the_exit_code_follows(project, name, limit, code, decision):
    done = call("check", name, "--fail-above", limit, "--format", "json")
    assert done.exit_code == code, done.stderr
    found = json.loads(done.stdout)
    assert (found["decision"], found["failed"]) == (decision, code == 3)
    assert (found["runs_needed"] is not None) == (decision == "too noisy")


def test_an_improvement_passes(project):
    pin("ten", as_="slow")
    done = call("check", "a", "--baseline", "slow")
    assert done.exit_code == 0
    assert done.stdout.startswith("Improvement: a mean step of 12.8 ms became 11.")


def test_the_default_is_the_baseline_main_and_three_percent(project):
    found = json.loads(call("check", "b", "--format", "json").stdout)
    assert (found["baseline"]["name"], found["limit"]) == ("main", 0.03)


def test_several_runs_are_used_together_on_either_side(project):
    pin("a", "b")
    found = json.loads(call("check", "three", "ten", "--format", "json").stdout)
    step = found["comparison"]["step"]
    assert (step["before"]["runs"], step["after"]["runs"], step["before"]["spread_from"]) == (2, 2, "runs")
    assert [run["by_recording"] for run in found["baseline"]["runs"]] == [True, True]


def test_a_recording_may_be_the_baseline_itself(project):
    done = call("check", "ten", "--baseline", "a", "--baseline", "b", "--format", "json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["baseline"]["name"] == "a and b"


def numbers(done):
    found = json.loads(done.stdout)["comparison"]
    return [found["step"][name] for name in ("change", "low", "high")], {
        each["key"].partition(":")[0]: 0 for each in found["causes"]
    }


def test_without_the_baselines_recording_what_the_history_stored_gives_the_same_interval(project):
    whole = call("check", "ten", "--format", "json")
    shutil.rmtree("a")
    stored = call("check", "ten", "--format", "json")
    assert [run["by_recording"] for run in json.loads(stored.stdout)["baseline"]["runs"]] == [False]
    assert numbers(stored)[0] == pytest.approx(numbers(whole)[0], rel=1e-6)
    assert numbers(stored)[1].keys() == numbers(whole)[1].keys()
    comparison = json.loads(stored.stdout)["comparison"]
    assert sum(each["delta_ns"] for each in comparison["causes"]) == comparison["difference_ns"]
    assert any("were not compared" in note for note in comparison["notes"])
    assert "known from the history alone" in " ".join(call("check", "ten").stdout.split())


def test_another_recording_in_the_baselines_folder_is_not_taken_for_it(project):
    shutil.rmtree("a")
    shutil.copytree("ten", "a")  # as the next run of a CI writes to the same folder
    done = call("check", "ten", "--format", "json")
    assert done.exit_code == 3
    assert [run["by_recording"] for run in json.loads(done.stdout)["baseline"]["runs"]] == [False]


def test_a_stored_diagnosis_is_checked_as_well(project):
    call("analyze", "ten", "--json", "ten.json", "--no-html", "-q")
    assert call("check", "ten.json").exit_code == 3


def test_a_run_is_not_held_against_itself(project):
    done = call("check", "a")
    assert done.exit_code == 1
    assert "a is a run of the baseline main itself" in done.stderr


def test_one_recording_counts_once(project):
    assert call("analyze", "a", "--save", "--no-html", "-q").exit_code == 0
    ids = call("history", "-q").stdout.split()
    assert len(ids) == 2
    call("history", "pin", "main", *ids)
    assert len(json.loads(call("check", "b", "--format", "json").stdout)["baseline"]["runs"]) == 1
    done = call("check", "b", "ten", "b")
    assert (done.exit_code, "b is given twice" in done.stderr) == (1, True)


def test_a_baseline_whose_recording_is_damaged_is_known_by_what_was_stored(project):
    for file in Path("a").glob("*/*.json"):
        file.write_bytes(file.read_bytes()[:1000].replace(b"{", b"["))
    for file in Path("a").glob("*.json"):
        file.write_text("[1, 2")
    found = json.loads(call("check", "ten", "--format", "json").stdout)
    assert [run["by_recording"] for run in found["baseline"]["runs"]] == [False]


def test_a_part_of_the_recording_is_checked_against_that_part(project):
    assert call("analyze", "a", "--steps", "3..20", "--save", "--no-html", "-q").exit_code == 0
    call("history", "pin", "part", "last")
    done = call("check", "ten", "--baseline", "part")
    assert (done.exit_code, "part is of steps 3..20, ten is of the whole" in done.stderr) == (1, True)
    done = call("check", "ten", "--baseline", "part", "--steps", "3..20", "--format", "json")
    assert done.exit_code == 3
    assert [run["by_recording"] for run in json.loads(done.stdout)["baseline"]["runs"]] == [True]


def changed(column, value):
    with sqlite3.connect("history.db") as db:
        db.execute(f"update runs set {column} = ?", [value])
    db.close()


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("device", "NVIDIA B200", "main ran on NVIDIA B200, b ran on NVIDIA A100"),
        ("gpus", 8, "main ran on 8 GPUs, b ran on 1 GPU"),
        ("world_size", 8, "main ran with 8 ranks, b ran with 1 rank"),
        ("part", "steps 3..5", "main is of steps 3..5, b is of the whole recording"),
    ],
)
def test_what_is_not_comparable_is_refused_in_one_line(project, column, value, said):
    shutil.rmtree("a")
    changed(column, value)
    done = call("check", "b")
    assert done.exit_code == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2


def test_another_command_is_refused_unless_both_are_said_to_be_one_program(tmp_path, monkeypatch):
    one, other = {"command": "python train.py --lr 1"}, {"command": "python train.py --lr 2"}
    with pytest.raises(PerfdoctorError, match="is of another command: python train.py --lr 1; b is of"):
        refuse_others("main", [one], [("b", other)])
    with pytest.raises(PerfdoctorError):
        refuse_others("main", [one], [("b", other)], program="--lr 1")
    refuse_others("main", [one], [("b", other)], program="train.py")
    refuse_others("main", [one], [("b", {"command": None})])  # a bare recording does not say
    refuse_others(
        "main", [{"command": "python train.py --seed 1"}], [("b", {"command": "python3.12 train.py --seed 2"})]
    )


def test_a_program_of_the_same_name_in_another_project_is_refused_unless_both_are_said_to_be_one():
    one, other = (
        {"command": "python train.py", "program_words": "python train.py", "project": name, "project_id": name}
        for name in ("gru", "mlp")
    )
    with pytest.raises(PerfdoctorError, match="is of another project, gru: python train.py; b is of mlp: python"):
        refuse_others("main", [one], [("b", other)])
    refuse_others("main", [one], [("b", other)], program="train.py")
    # Of a run from before projects were known only the repository is.
    before = {"command": "python train.py", "program_words": None, "project": "mlp", "project_id": "root"}
    inside = {**other, "project": "mlp/small", "project_id": "small"}
    refuse_others("main", [before], [("b", inside)])


@pytest.mark.parametrize(
    ("setting", "arguments", "said", "do"),
    [
        ("none.db", (), "there is no history yet", "perfdoctor history pin main"),
        ("off", (), "PERFDOCTOR_HISTORY is off", "name a file with --db"),
        ("history.db", ("--baseline", "release"), "nothing is pinned as 'release'", "Pinned are: main."),
        ("history.db", ("--baseline", "\x1b[31mx\n::error::y"), "nothing is pinned as", "Pinned are: main."),
    ],
)
def test_without_the_baseline_one_line_says_what_and_one_what_to_do(project, monkeypatch, setting, arguments, said, do):
    monkeypatch.setenv("PERFDOCTOR_HISTORY", setting)
    done = call("check", "b", *arguments)
    assert done.exit_code == 1
    what, remedy = done.stderr.strip().splitlines()
    assert said in what
    assert do in remedy
    assert "\x1b" not in done.stderr
    assert not Path("none.db").exists()


def test_a_history_that_is_empty_names_no_pins(project):
    call("history", "pin", "main", "--remove")
    done = call("check", "b")
    assert (done.exit_code, "nothing is pinned as 'main'" in done.stderr) == (1, True)


def test_files_are_written_beside_what_is_printed(project):
    files = {"json": "c.json", "markdown": "c.md", "sarif": "c.sarif", "junit": "c.xml", "html": "c.html"}
    options = [word for name, file in files.items() for word in (f"--{name}", file)]
    for _ in range(2):  # our own files are overwritten
        done = call("check", "ten", *options)
        assert done.exit_code == 3, done.stderr
    assert done.stdout.startswith("Regression, above the limit of 3 %")
    for name in ("json", "markdown", "sarif", "junit"):
        assert call("check", "ten", "--format", name).stdout == Path(files[name]).read_text("utf-8")
    assert "Regression" not in done.stderr
    page = Path(files["html"]).read_text("utf-8")
    assert "<title>Regression, above the limit of 3 %" in page
    assert "Baseline (BEFORE): main, " in page


def test_a_dash_is_standard_output(project):
    assert call("check", "b", "--sarif", "-").stdout == call("check", "b", "--format", "sarif").stdout
    done = call("check", "b", "--sarif", "-", "--format", "junit")
    assert (done.exit_code, "both want standard output" in done.stderr) == (2, True)


@pytest.mark.parametrize("option", ["--json", "--markdown", "--sarif", "--junit"])
def test_a_file_of_somebody_else_is_kept(project, option):
    Path("notes.txt").write_text("mine")
    done = call("check", "ten", option, "notes.txt")
    assert (done.exit_code, Path("notes.txt").read_text()) == (1, "mine")
    assert f"{option} notes.txt exists and was not written by perfdoctor" in done.stderr


def test_where_nothing_can_be_written_the_verdict_is_printed_all_the_same(project, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/proc/none/summary.md")
    done = call("check", "ten", "--format", "github")
    assert done.exit_code == 3
    assert done.stdout.startswith("::error ")
    assert "no summary written" in done.stderr
    done = call("check", "ten", "--junit", "/proc/none/check.xml")
    assert done.exit_code == 1
    assert done.stdout.startswith("Regression")
    assert "--junit /proc/none/check.xml cannot be written" in done.stderr


def test_the_summary_of_the_step_is_added_to(project, monkeypatch):
    summary = project / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    call("check", "ten", "--format", "github")
    call("check", "b", "--format", "github")
    text = summary.read_text("utf-8")
    assert text.startswith("before\n<!-- perfdoctor check -->\n❌ **Regression")
    assert "✅ **No change" in text


def test_a_check_writes_nothing_into_the_history(project):
    before = Path("history.db").read_bytes()
    assert call("check", "ten").exit_code == 3
    assert Path("history.db").read_bytes() == before
    assert {path.name for path in project.iterdir()} <= {
        "a",
        "b",
        "three",
        "ten",
        "history.db",
        "history.db-shm",
        "history.db-wal",
    }


def test_quiet_prints_the_verdict_alone(project):
    assert call("check", "ten", "-q").stdout.count("\n") == 1
