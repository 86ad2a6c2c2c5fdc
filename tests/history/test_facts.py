"""What is stored of a run is what its diagnosis says, and nothing that nobody should read."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from statistics import fmean

import pytest
from folders import FIXTURES
from history.histories import facts as made
from history.histories import history
from msgspec.structs import replace

from perfdoctor.cli.analyze import AnalysisRequest, diagnosed, rules_of
from perfdoctor.cli.hardware_options import user_values
from perfdoctor.history import runs, store
from perfdoctor.history.facts import Facts, facts, iso, plain, plain_text
from perfdoctor.model.run import Selection
from perfdoctor.report import json_report
from perfdoctor.system.project import Project
from perfdoctor.system.run_folder import TimedSteps


def examined(name, **asked):
    return diagnosed([FIXTURES / name], AnalysisRequest(rules_of([], []), **asked, quiet=True))


@pytest.fixture(scope="module")
def straggler():
    return examined("straggler/torch")


def test_the_row_says_what_the_document_says(straggler):
    stored = facts(straggler, [FIXTURES / "straggler/torch"], source="analyze")
    document, row = json.loads(json_report.render(straggler.diagnosis)), stored.run
    assert (row["median_ns"], row["p10_ns"], row["p90_ns"]) == tuple(
        document["run"]["steps"][name] for name in ("median_ns", "p10_ns", "p90_ns")
    )
    assert row["world_size"] == document["run"]["world_size"]
    assert row["gpus"] == len(document["run"]["gpus"])
    assert row["predicted_ns"] == document["prediction"]["step_ns"]["likely"]
    assert [each["rule"] for each in stored.findings] == [each["rule"] for each in document["findings"]]
    assert [each["likely_ns"] for each in stored.findings] == [
        each["saving_ns_per_step"]["likely"] for each in document["findings"]
    ]
    assert [each["symptom_of"] for each in stored.findings] == [each["symptom_of"] for each in document["findings"]]


def test_the_parts_sum_to_the_window_and_the_step_times_to_the_step(straggler):
    stored = facts(straggler, [FIXTURES / "straggler/torch"], source="analyze")
    windows = sum(split.window_ns for split in straggler.diagnosis.time)
    assert sum(part["ns"] for part in stored.parts) == stored.run["window_ns"] == windows
    times = runs.numbers_in(stored.run["step_times_ns"])
    assert len(times) == stored.run["steps"]
    assert abs(fmean(times) - stored.run["recorded_step_ns"]) <= 1


def test_the_project_and_the_timed_steps_are_stored(straggler):
    timed = TimedSteps(0, (900, *[100] * 30, 500, *[101] * 40), (31, 32))
    known = replace(straggler.diagnosis, project=Project("vision", "abc", "python train.py"), timed=timed)
    row = facts(replace(straggler, diagnosis=known), [FIXTURES / "straggler/torch"], source="run").run
    assert (row["project"], row["project_id"], row["program_words"]) == ("vision", "abc", "python train.py")
    assert runs.numbers_in(row["timed_steps_ns"]) == (101,) * 39
    unknown = facts(straggler, [FIXTURES / "straggler/torch"], source="check").run
    assert unknown.keys() & {"project", "project_id"} == set()


def test_what_comparisons_need_is_stored(straggler):
    row = facts(straggler, [FIXTURES / "straggler/torch"], source="analyze").run
    assert (row["unrecorded_step_ns"], row["contended_share"], row["items_per_step"]) == (None, 0.0, None)
    given = examined("straggler/torch", user_values=user_values(None, [], "16k", None))
    assert facts(given, [FIXTURES / "straggler/torch"], source="analyze").run["items_per_step"] == 16_000


def test_a_part_of_a_recording_is_stored_as_such():
    examination = examined("straggler/torch", part=Selection(steps=(2, 4)))
    assert facts(examination, [FIXTURES / "straggler/torch"], source="analyze", process=2).run["part"] == (
        "steps 2..4, process 2"
    )


def test_two_analyses_of_one_recording_are_known_as_such_and_two_recordings_are_not(straggler):
    paths = [FIXTURES / "straggler/torch"]
    first, second = (facts(straggler, paths, source="analyze").run for _ in range(2))
    assert first["recording"] == second["recording"]
    assert first["id"] != second["id"]
    other = facts(examined("healthy/torch"), [FIXTURES / "healthy/torch"], source="analyze").run
    assert other["recording"] != first["recording"]


def git(folder, *arguments):
    identity = ["-c", "user.email=a@b", "-c", "user.name=n", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def run_folder(tmp_path, monkeypatch):
    """A run folder in a checkout, that was recorded at another commit than is checked out now."""
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    first = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "second")
    folder = tmp_path / "perfdoctor-runs" / "run"
    (folder / "torch").mkdir(parents=True)
    for trace in (FIXTURES / "healthy" / "torch").iterdir():
        (folder / "torch" / trace.name).write_bytes(trace.read_bytes())
    manifest = {
        "format": 1, "perfdoctor": "0.1.0", "started_unix_ns": 1_700_000_000_000_000_000, "exit_code": 0,
        "command": ["torchrun", "train.py", "--api-key", "hunter2", "--url=https://me:pw@host/", "hf_" + "a" * 20],
        "checkout": {"commit": first, "dirty": True, "branch": "main"},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(manifest))
    return folder


def test_the_commit_is_that_of_the_recording_and_not_that_of_its_analysis(run_folder, tmp_path):
    row = facts(examined(run_folder), [run_folder], source="analyze").run
    assert row["git_commit"] == git(tmp_path, "rev-parse", "HEAD~1")
    assert (row["git_dirty"], row["git_branch"], row["git_from"]) == (1, "main", "run")
    assert (row["recorded_at"], row["recorded_from"]) == ("2023-11-14T22:13:20.000Z", "run")
    assert row["folder"] == "perfdoctor-runs/run"


def test_a_recording_is_of_the_day_that_its_clock_says_and_else_of_that_of_its_file(tmp_path):
    trace = FIXTURES / "healthy" / "torch" / "rank0.pt.trace.json.gz"
    row = facts(examined(trace), [trace], source="analyze").run
    assert (row["recorded_at"][:10], row["recorded_from"]) == ("2026-01-01", "recording")
    export = tmp_path / "profile.sqlite"  # whose time 0 is not known
    export.write_bytes((FIXTURES / "healthy" / "nsys" / "profile.sqlite").read_bytes())
    os.utime(export, (1_600_000_000, 1_600_000_000))
    row = facts(examined(export), [export], source="analyze").run
    assert (row["recorded_at"][:10], row["recorded_from"]) == ("2020-09-13", "file")


def test_secrets_of_the_command_are_not_stored(run_folder, tmp_path):
    stored = facts(examined(run_folder), [run_folder], source="run")
    history(tmp_path / "history.db", [stored])
    written = b"".join(path.read_bytes() for path in tmp_path.glob("history.db*"))
    assert b"train.py" in written
    for secret in (b"hunter2", b"me:pw", b"hf_aaaa"):
        assert secret not in written
    assert stored.run["program"] == "train.py"


def test_the_users_home_is_not_stored(run_folder, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    manifest = json.loads((run_folder / "run.json").read_text())
    manifest["command"] = ["/home/ada/env/bin/python", "train.py", "/home/adam/data"]
    (run_folder / "run.json").write_text(json.dumps(manifest))
    row = facts(examined(run_folder), [run_folder], source="run").run
    assert row["command"].split() == ["'~/env/bin/python'", "train.py", "/home/adam/data"]


def test_a_recording_that_is_older_than_the_commit_is_not_said_to_be_of_it(tmp_path, monkeypatch, straggler):
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q")
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    os.utime(trace, (1_000_000_000, 1_000_000_000))
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "later")
    assert facts(straggler, [trace], source="analyze").run["git_commit"] is None
    os.utime(trace, (4_000_000_000, 4_000_000_000))
    row = facts(straggler, [trace], source="analyze").run
    assert row["git_commit"] == git(tmp_path, "rev-parse", "HEAD")
    assert (row["git_dirty"], row["git_from"]) == (0, "analyze")


HOSTILE = [
    "'; drop table runs; --", '"quoted" `and` [bracketed]', "<script>alert(1)</script>", "\x1b[31mred\x1b]0;title\x07", "[/red][bold]",
    "a\0b", "\ud800 half", "right\u202eto left", "=cmd|' /C calc'!A0", "%s %d {} {0}", "é" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_stored_as_text(tmp_path, text):
    hostile = made(command=text, program=text, device=text, git_branch=text, verdict=text, files=text)
    file = history(tmp_path / "history.db", [Facts(plain(hostile.run), hostile.parts, hostile.findings)])
    with store.written(file) as db:
        runs.note(db, text, hostile.id)
    with store.read(file) as db:
        found = runs.stored(db, hostile.id)
        assert found.facts["command"] == plain_text(text)
        assert len(found.facts["command"]) <= 4000
        assert found.notes[0]["note"] == plain_text(text, 2000)
        assert len(runs.listed(db)) == 1
    with sqlite3.connect(file) as connection:  # whole for every reader, up to a NUL and beyond
        stored, length = connection.execute("select command, length(cast(command as blob)) from runs").fetchone()
        assert len(stored.encode()) == length
        assert "\0" not in stored


def test_times_sort_as_text():
    assert iso(1_700_000_000_999_000_000) == "2023-11-14T22:13:20.999Z"
    moments = [iso(ns) for ns in range(1_699_999_999_000_000_000, 1_700_000_001_000_000_000, 7_000_001)]
    assert moments == sorted(moments)
