"""Runs are found by what people type, and pins, tags, notes, prune and merge do what they say."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta, timezone

import pytest
from history.histories import facts, history

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.history import runs, store


@pytest.fixture
def file(tmp_path):
    every = [facts(number, id=f"{number:x}" * 12) for number in range(10)]
    return history(tmp_path / "history.db", [renamed(each) for each in every])


def renamed(each):
    return runs.renamed(each, each.run["id"])


def ids(file):
    with store.read(file) as db:
        return [row["id"][0] for row in runs.listed(db)]


def test_a_run_is_found_by_digits_place_pin_and_folder(tmp_path):
    named = [facts(0, id="abcdef000000"), facts(1, id="abcd11000000", folder="perfdoctor-runs/x")]
    file = history(tmp_path / "history.db", [renamed(each) for each in named])
    with store.written(file) as db:
        runs.pin(db, "main", ["abcdef000000"])
        found = {text: runs.resolved(db, text) for text in ("last", "last~1", "abcde", "main", "perfdoctor-runs/x/")}
        assert found == {
            "last": "abcd11000000", "last~1": "abcdef000000", "abcde": "abcdef000000", "main": "abcdef000000",
            "perfdoctor-runs/x/": "abcd11000000",
        }  # fmt: skip
        for wrong, said in (
            ("abcd", "several"),
            ("last~7", "only 2"),
            ("nothing", "no run"),
            ("a%", "no run"),
            ("' or 1", "no run"),
        ):
            with pytest.raises(UsageError, match=said):
                runs.resolved(db, wrong)


def test_a_pin_stands_for_the_runs_that_it_was_given_last_and_those_that_were_added(file):
    with store.written(file) as db:
        runs.pin(db, "main", ["0" * 12, "1" * 12])
        runs.pin(db, "main", ["2" * 12])
        runs.pin(db, "main", ["3" * 12], add=True)
        assert [each.facts["id"][0] for each in runs.pinned(db, "main")] == ["2", "3"]
        assert runs.stored(db, "2" * 12).pins == ("main",)
        runs.unpin(db, "main")
        assert runs.pinned(db, "main") == ()
        with pytest.raises(UsageError):
            runs.unpin(db, "main")


@pytest.mark.parametrize("name", ["last", "last~1", "abcdef", "", "-x", "a b", "a;b", "x" * 101, "ä\n"])
def test_a_name_that_could_be_taken_for_a_run_or_an_option_is_refused(name):
    with pytest.raises(UsageError):
        runs.named(name, "pin")


@pytest.mark.parametrize("name", ["main", "v1.2", "feature/amp", "größe-2"])
def test_other_names_are_names(name):
    assert runs.named(name, "pin") == name


def test_prune_keeps_the_newest_and_what_is_pinned_and_the_rest_is_gone_from_the_disk(tmp_path):
    every = [renamed(facts(number, id=f"{number:x}" * 12, command=f"python secret{number}.py")) for number in range(10)]
    file = history(tmp_path / "history.db", every)
    with store.written(file) as db:
        runs.pin(db, "main", ["1" * 12])
        runs.tag(db, "kept", "0" * 12)
        gone = runs.to_prune(db, "3")
        runs.remove(db, gone)
    assert ids(file) == ["9", "8", "7", "1"]
    with sqlite3.connect(file) as connection:
        for table in ("parts", "findings", "tags"):
            left = {row[0][0] for row in connection.execute(f"select run_id from {table}")}
            assert left <= {"9", "8", "7", "1"}
    content = b"".join(path.read_bytes() for path in tmp_path.glob("history.db*"))
    assert b"secret9.py" in content
    assert b"secret2.py" not in content


def test_prune_by_age(tmp_path):
    now = datetime.now(timezone.utc)
    every = [
        facts(0, id=f"{days:012x}", recorded_at=(now - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.000Z"))
        for days in (1, 29, 31, 400)
    ]
    file = history(tmp_path / "history.db", [renamed(each) for each in every])
    with store.read(file) as db:
        assert {int(each, 16) for each in runs.to_prune(db, "30d")} == {31, 400}
        assert runs.to_prune(db, "4") == []
        assert len(runs.to_prune(db, "0")) == 4
        with pytest.raises(UsageError):
            runs.to_prune(db, "some")


def test_merge_adds_what_is_new_and_changes_nothing_that_is_here(file, tmp_path):
    both = renamed(facts(5, id="5" * 12, program="theirs.py"))
    other = history(tmp_path / "other.db", [both, renamed(facts(20, id="b" * 12))])
    with store.written(other) as db:
        runs.tag(db, "nightly", "5" * 12)
        runs.pin(db, "main", ["b" * 12])
        runs.pin(db, "theirs", ["b" * 12])
    before = other.read_bytes()
    with store.written(file) as db:
        runs.pin(db, "main", ["3" * 12])
        merged = runs.merge(db, other)
        assert (merged.added, merged.known, merged.damaged, merged.pins) == (1, 1, 0, ("main",))
        assert runs.stored(db, "5" * 12).facts["program"] == "train.py"
        assert runs.stored(db, "5" * 12).tags == ("nightly",)
        assert dict(runs.stored(db, "b" * 12).parts) == dict(runs.stored(db, "0" * 12).parts)
        assert [each.facts["id"][0] for each in runs.pinned(db, "main")] == ["3"]
        assert [each.facts["id"][0] for each in runs.pinned(db, "theirs")] == ["b"]
        again = runs.merge(db, other)
        assert (again.added, again.known) == (0, 2)
    assert other.read_bytes() == before


def test_a_hostile_history_is_merged_as_far_as_it_is_one(file, tmp_path):
    other = history(tmp_path / "other.db", [renamed(facts(20, id="b" * 12)), renamed(facts(21, id="c" * 12))])
    with sqlite3.connect(other) as connection:
        connection.execute("update runs set id = '<script>' where id = ?", ["c" * 12])
        connection.execute(
            "update runs set step_ns = 'many', mfu = x'00ff', program = x'00', command = ? where id = ?",
            ["x" * 100_000, "b" * 12],
        )
        connection.execute("update findings set likely_ns = 'a lot', title = 3")
        connection.execute("update parts set ns = 'long'")
    with store.written(file) as db:
        merged = runs.merge(db, other)
        assert (merged.added, merged.damaged) == (1, 1)
        row = runs.stored(db, "b" * 12)
        assert (row.facts["step_ns"], row.facts["mfu"], row.facts["program"]) == (None, None, None)
        assert len(row.facts["command"]) == 4000
        assert row.findings[0]["likely_ns"] is None
        assert not row.parts


def test_what_is_no_history_is_not_merged(file, tmp_path):
    other = tmp_path / "notes.db"
    with sqlite3.connect(other) as connection:
        connection.execute("create table notes (text)")
    with store.written(file) as db, pytest.raises(PerfdoctorError, match="is no history"):
        runs.merge(db, other)
    assert len(ids(file)) == 10
