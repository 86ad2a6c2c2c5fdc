"""`perfdoctor history` shows what was stored, `--save` stores it, and nothing that goes wrong with it hurts a run."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
import subprocess
import sys

import pytest
from folders import FIXTURES
from history.histories import STEP_NS, facts, history
from history.test_facts import HOSTILE
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.history import runs, store
from perfdoctor.history.facts import Facts, plain
from perfdoctor.history.store import history_file
from perfdoctor.report import history_terminal
from perfdoctor.report.terminal_text import Terminal

TRACE = str(FIXTURES / "input-bound-single-process" / "torch")
SUBCOMMANDS = ("show", "trend", "promises", "pin", "tag", "note", "prune", "merge")


def ran(*arguments, code=0, **more):
    done = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="perfdoctor", **more)
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A history of twelve runs, the last four of which are slower; it is the project's."""
    path = history(
        tmp_path / "history.db", [facts(n, step_ns=STEP_NS * (10 + (n > 7)) + 99_991 * n % 7_777) for n in range(12)]
    )
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(path))
    monkeypatch.chdir(tmp_path)
    return path


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_each_command_has_an_example_and_fits_into_80_columns(command):
    lines = ran("history", command, "--help", env={"COLUMNS": "80"}).stdout.splitlines()
    assert [line for line in lines if line.startswith(f"    perfdoctor history {command}")]
    assert [line for line in lines if len(line) > 80] == []


def test_the_list_is_newest_first_and_says_how_many_are_older(file):
    lines = ran("history", "--limit", "3", env={"COLUMNS": "150"}).stdout.splitlines()
    assert len(lines) == 5
    assert "1.10 s" in lines[1]
    assert lines[1].startswith(ran("history", "--quiet", "--limit", "1").stdout.strip())
    assert lines[-1].startswith("9 older")
    document = json.loads(ran("history", "--json", "--limit", "99").stdout)
    assert len(document["runs"]) == 12
    assert len(document["runs"][0]["step_times_ns"]) == 3


def test_the_list_and_the_run_name_their_project_where_there_are_several(tmp_path, monkeypatch):
    every = [facts(n, project=name, project_id=name) for n, name in enumerate(("gru", "mlp"))]
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(history(tmp_path / "history.db", every)))
    assert all(name in ran("history").stdout for name in ("project", "gru", "mlp"))
    assert "project    mlp" in ran("history", "show").stdout


def test_the_list_fits_into_a_terminal_of_80_columns_and_is_whole_where_it_is_piped(file):
    with store.read(file) as db:
        listed = runs.listed(db, limit=12)
    screen = io.StringIO()
    history_terminal.runs(listed, 12, Terminal(file=screen, width=80, force_terminal=True, color_system=None))
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert [line[:8] for line in lines[1:13]] == [row["id"][:8] for row in listed]
    piped = ran("history", env={"COLUMNS": "80"}).stdout
    assert all(row["id"] in piped for row in listed)


def test_the_percentiles_of_recorded_steps_stand_behind_the_recorded_step(tmp_path, monkeypatch):
    path = history(
        tmp_path / "history.db",
        [facts(1, step_ns=80_000_000, recorded_step_ns=100_000_000, p10_ns=90_000_000, p90_ns=110_000_000)],
    )
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(path))
    said = ran("history", "show", "last", env={"COLUMNS": "150"}).stdout
    assert (
        "80.0 ms without a recorder, 100 ms while recorded, 3 steps, 10th to 90th percentile 90.0 ms to 110 ms" in said
    )


def test_show_has_every_column_that_is_known(file):
    document = json.loads(ran("history", "show", "last", "--json").stdout)["run"]
    with sqlite3.connect(file) as connection:
        connection.row_factory = sqlite3.Row
        row = dict(connection.execute("select * from runs order by recorded_at desc limit 1").fetchone())
    assert {name: document[name] for name in row if name not in ("step_times_ns", "predicted_fixed", "git_dirty")} == {
        name: value for name, value in row.items() if name not in ("step_times_ns", "predicted_fixed", "git_dirty")
    }
    assert document["parts_ns"] == {"compute": 5 * row["step_ns"], "input_wait": row["step_ns"]}
    text = ran("history", "show").stdout
    for shown in ("python train.py", "2 × NVIDIA H100", "1.10 s", "input-wait", "waiting for data", "40 %"):
        assert shown in text


def test_a_trend_names_the_first_bad_run_in_every_form(file):
    pytest.importorskip("ruptures")
    document = json.loads(ran("history", "trend", "step", "--json").stdout)
    assert len(document["points"]) == 12
    [change] = document["changes"]
    assert change["worse"]
    assert change["first_run"] == document["points"][8]["run"]
    text = ran("history", "trend", env={"COLUMNS": "100"}).stdout
    assert "▁▁▁▁▁▁▁▁████" in text
    assert f"First bad run: {change['first_run']}" in text
    assert "rose by 10 %, from 1.00 s to 1.10 s" in " ".join(text.split())
    rows = list(csv.DictReader(io.StringIO(ran("history", "trend", "--csv").stdout)))
    assert [float(row["value"]) for row in rows] == [point["value"] for point in document["points"]]
    assert "rose by 10 %" in ran("history", "trend", "--quiet").stdout


def test_the_page_of_a_trend_has_its_numbers_and_loads_nothing(file, tmp_path):
    pytest.importorskip("ruptures")
    ran("history", "trend", "--html", tmp_path / "trend.html")
    page = (tmp_path / "trend.html").read_text("utf-8")
    for shown in ("<svg", "First bad run", "1.10", "perfdoctor"):
        assert shown in page
    for never in ("http://", "https://", "<script", "src="):
        assert never not in page
    (tmp_path / "mine.html").write_text("mine")
    ran("history", "trend", "--html", tmp_path / "mine.html", code=1)
    assert (tmp_path / "mine.html").read_text() == "mine"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_shown_as_text_by_every_command(tmp_path, text):
    changes = dict.fromkeys(
        ("command", "program", "device", "git_branch", "verdict", "files", "folder", "torch", "part"), text
    )
    every = [facts(n, **changes) for n in range(3)]
    file = history(tmp_path / "history.db", [Facts(plain(each.run), each.parts, each.findings) for each in every])
    with store.written(file) as db:
        runs.note(db, text, every[0].id)
        runs.tag(db, plain({"tag": text})["tag"], every[0].id)
    page = tmp_path / "trend.html"
    for command in ((), ("show", every[0].id), ("trend", "--html", page), ("show", "--json"), ("trend", "--csv")):
        output = ran("history", *command, "--db", file).output
        assert "\x1b" not in output
        assert "\u202e" not in output or "--json" in command
    assert "<script" not in page.read_text("utf-8")
    assert json.loads(ran("history", "trend", "--json", "--db", file).stdout)["points"]


def test_a_file_from_elsewhere_with_any_type_in_any_column_is_shown(file):
    with sqlite3.connect(file) as connection:
        names = [row[1] for row in connection.execute("pragma table_info(runs)") if row[1] not in ("id", "recorded_at")]
        for name in names:
            connection.execute(f"update runs set {name} = x'00ff' where rowid % 2")
        connection.execute("update findings set likely_ns = 'a lot', rule = x'00', position = 'first'")
        connection.execute("update parts set ns = 'long'")
    for command in ((), ("show",), ("show", "last~1"), ("--json",), ("trend",)):
        ran("history", *command)


def test_pin_tag_and_note_arrive_in_the_list(file):
    ran("history", "pin", "main", "last~2")
    ran("history", "tag", "nightly")
    ran("history", "note", "with the new loader")
    listed = json.loads(ran("history", "--json").stdout)["runs"]
    assert (listed[2]["pins"], listed[0]["tags"]) == (["main"], ["nightly"])
    assert len(json.loads(ran("history", "--tag", "nightly", "--json").stdout)["runs"]) == 1
    assert "with the new loader" in ran("history", "show").stdout
    assert ran("history", "show", "main", "--json").stdout == ran("history", "show", "last~2", "--json").stdout
    ran("history", "tag", "nightly", "--remove")
    ran("history", "tag", "nightly", "--remove", code=2)
    ran("history", "pin", "main", "--remove")
    ran("history", "show", "main", code=2)


def test_prune_and_merge(file, tmp_path):
    other = history(tmp_path / "other.db", [facts(40)])
    ran("history", "merge", other)
    assert "1 runs added" in ran("history", "merge", other).output or json.loads(ran("history", "--json").stdout)
    would = ran("history", "prune", "--keep", "5", "--dry-run").stdout.split()
    assert len(would) == 8
    ran("history", "prune", "--keep", "5")
    left = {row["id"] for row in json.loads(ran("history", "--json").stdout)["runs"]}
    assert len(left) == 5
    assert not left & set(would)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("trend", "speed"), 2), (("show", "zzz"), 2), (("show", "last~99"), 2), (("pin", "last"), 2), (("prune", "--keep", "x"), 2),
        (("trend", "--json", "--csv"), 2), (("merge", "/nowhere.db"), 1), (("show", "--db", "/nowhere/history.db"), 1),
        (("pin", "main", "--db", "/nowhere/history.db"), 1), (("--limit", "0"), 2),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_two_lines_and_the_exit_code_of_the_contract(file, arguments, code):
    done = ran("history", *arguments, code=code)
    assert "Traceback" not in done.output


def test_save_stores_one_row_in_the_project_and_keeps_it_out_of_git(tmp_path, monkeypatch):
    monkeypatch.delenv("PERFDOCTOR_HISTORY")
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    done = ran("analyze", TRACE, "--no-html", "--save")
    assert "stored in the history as" in done.stderr
    ran("analyze", TRACE, "--no-html")  # without --save nothing is stored
    assert (tmp_path / ".perfdoctor" / ".gitignore").read_text() == "*\n"
    with sqlite3.connect(tmp_path / ".perfdoctor" / "history.db") as connection:
        assert connection.execute("select source, step_ns > 0 from runs").fetchall() == [("analyze", 1)]


def test_the_history_lies_at_the_projects_root_else_in_the_users_data_folder(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    data = {"XDG_DATA_HOME": str(tmp_path / "data")}
    outside = tmp_path / "data" / "perfdoctor" / "history.db"
    assert history_file(inner, data) == outside or any((each / ".git").exists() for each in inner.parents)
    (tmp_path / "a" / ".git").write_text("gitdir: elsewhere")  # as in a worktree
    assert history_file(inner, data) == tmp_path / "a" / ".perfdoctor" / "history.db"
    assert history_file(inner, {"PERFDOCTOR_HISTORY": "off"}) is None
    assert str(history_file(inner, {"PERFDOCTOR_HISTORY": "/x/y.db"})) == "/x/y.db"


@pytest.mark.parametrize("obstacle", ["a file is in the way", "another program's", "damaged", "newer"])
def test_a_history_that_cannot_be_written_costs_one_line_and_nothing_else(tmp_path, monkeypatch, obstacle):
    file = tmp_path / ".perfdoctor" / "history.db"
    if obstacle == "a file is in the way":
        file.parent.write_text("")
    else:
        file.parent.mkdir()
        if obstacle == "another program's":
            with sqlite3.connect(file) as connection:
                connection.execute("create table mine (x)")
        elif obstacle == "newer":
            with sqlite3.connect(history(file, [facts()])) as connection:
                connection.execute("pragma user_version = 999")
                connection.execute("update schema set works_from = 999")
        else:
            file.write_bytes(b"no database at all")
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(file))
    done = ran("analyze", TRACE, "--no-html", "--save", "--json", tmp_path / "d.json")
    [line] = [line for line in done.stderr.splitlines() if "history" in line]
    assert line.startswith("perfdoctor: not stored in the history: ")
    assert json.loads((tmp_path / "d.json").read_text())["findings"]


def test_an_error_of_ours_in_the_history_is_one_line_too(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFDOCTOR_HISTORY", str(tmp_path / "history.db"))
    monkeypatch.setattr("perfdoctor.history.facts.facts", lambda *_, **__: 1 / 0)
    done = ran("analyze", TRACE, "--no-html", "--save", "--quiet")
    assert done.stderr.strip() == "perfdoctor: not stored in the history: ZeroDivisionError: division by zero"


def test_the_commands_load_neither_pandas_nor_torch(file):
    program = "import sys; sys.argv = ['perfdoctor', 'history']; from perfdoctor.cli.main import main\ntry: main()\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ}
    )
    loaded = set(done.stdout.split())
    assert "sqlite_utils.db" in loaded
    assert not loaded & {"pandas", "torch", "scipy", "ruptures"}
