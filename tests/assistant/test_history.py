"""Does an assistant learn of earlier runs what the history's file says, and does that file stay as it is?"""

from __future__ import annotations

import pytest
from history.histories import STEP_NS, facts, history

from assistant.client import assistant
from assistant.truth import sql
from perfdoctor.history import schema, store


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Twenty runs, of which the last five are slower."""
    folder = tmp_path_factory.mktemp("root") / schema.FOLDER
    folder.mkdir()
    every = [facts(number, step_ns=STEP_NS + number + 30_000_000 * (number >= 15)) for number in range(20)]
    return history(folder / store.FILE, every)


@pytest.fixture(scope="module")
def client(file):
    with assistant(file.parents[1]) as connected:
        yield connected


def test_every_run_newest_first_in_pages(client, file):
    listed = client.pages("history", "runs", limit=7)
    stored = sql(file, "SELECT id, step_ns FROM runs ORDER BY recorded_at DESC")
    assert [(each["id"], each["step_ns"]) for each in listed] == stored


def test_all_of_one_run(client, file):
    run = client.ask("history", run="last~3")["run"]
    ((name, step, wait),) = sql(
        file, """SELECT id, step_ns, ns FROM runs JOIN parts ON run_id = id AND parts.part = 'input_wait'
        ORDER BY recorded_at DESC LIMIT 1 OFFSET 3""",
    )  # fmt: skip
    assert (run["id"], run["step_ns"], run["parts_ns"]["input_wait"]) == (name, step, wait)
    assert [finding["rule"] for finding in run["findings"]] == ["input-wait"]


def test_how_a_number_developed(client, file):
    answer = client.ask("history", metric="step", limit=200)
    stored = sql(file, "SELECT id, step_ns FROM runs ORDER BY recorded_at DESC")
    assert [(each["run"], each["value"]) for each in answer["points"]] == stored
    assert (answer["metric"]["unit"], answer["metric"]["better"]) == ("ns", "lower")
    if not answer["not_searched"]:
        assert answer["changes"][0]["first_run"] == stored[4][0]


def test_an_old_history_is_read_and_not_brought_up_to_date(tmp_path, file):
    old = tmp_path / "old.db"
    old.write_bytes(file.read_bytes())
    from sqlite3 import connect  # noqa: PLC0415 to make it old

    with connect(old) as db:
        db.execute("DROP VIEW IF EXISTS overview")
        db.execute("DROP TABLE tried_fixes")
        db.execute("PRAGMA user_version = 4")
        later = ("project", "project_id", "program_words", "timed_steps_ns", "recorded_from")
        for column in ("unrecorded_step_ns", "contended_share", "items_per_step", *later):
            for (view,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall():
                db.execute(f"DROP VIEW {view}")
            db.execute(f"ALTER TABLE runs DROP COLUMN {column}")
    before = old.read_bytes()
    with assistant(tmp_path) as client:
        assert client.ask("history", path="old.db")["total"] == 20
    assert old.read_bytes() == before


def test_nothing_is_made_beside_it(tmp_path):
    made = history(tmp_path / "history.db", [facts(number) for number in range(3)])
    with assistant(tmp_path) as client:
        assert client.ask("history", path=made.name)["total"] == 3
    assert [each.name for each in tmp_path.iterdir()] == [made.name]
