"""What was promised and what came is kept, merged and exported, without names of anybody."""

from __future__ import annotations

import csv
import io

import pytest

from perfdoctor.history import promises, runs, schema, store
from perfdoctor.report import history_json

ROW = {
    "rule": "input-wait", "fix": "loader_workers", "machine": "H100", "torch": "2.9", "size": "1 to 10 MB",
    "promised_low": 0.2, "promised_likely": 0.3, "promised_high": 0.4, "measured_low": 0.25, "measured_likely": 0.31,
    "measured_high": 0.37, "pairs": 6, "verdict": "keep", "source": "treat",
}  # fmt: skip


def stored(file, *rows):
    with store.written(file) as db:
        promises.save(db, rows)
    return file


def test_rows_are_found_by_machine_and_fix(tmp_path):
    file = stored(tmp_path / "history.db", ROW, {**ROW, "machine": "A100"}, {**ROW, "fix": "other"})
    with store.read(file) as db:
        assert [row["fix"] for row in promises.listed(db, machine="A100")] == ["loader_workers"]
        assert len(promises.listed(db, fix="loader_workers")) == 2
        assert len(promises.listed(db)) == 3


def test_rows_of_colleagues_are_merged_once_and_damaged_ones_are_left_out(tmp_path):
    theirs = stored(tmp_path / "theirs.db", ROW, {**ROW, "fix": "=cmd|' /C calc'!A0"})
    with store.written(tmp_path / "history.db") as db:
        for _ in range(2):
            runs.merge(db, theirs)
        assert [row["fix"] for row in promises.listed(db)] == ["loader_workers"]


def test_csv_has_every_column_and_no_formula(tmp_path):
    file = stored(tmp_path / "history.db", {**ROW, "machine": "=1+1"})
    with store.read(file) as db:
        rows = list(csv.DictReader(io.StringIO(history_json.promises_csv(promises.listed(db)))))
    assert list(rows[0]) == list(schema.PROMISE_COLUMNS)
    assert rows[0]["measured_likely"] == "0.31"
    assert rows[0]["machine"] == "'=1+1"


@pytest.mark.parametrize(
    ("bytes_", "name"), [(0, ""), (999_999, "below 1 MB"), (10**6, "1 to 10 MB"), (10**12, "10 GB and more")]
)
def test_models_are_of_a_size_class(bytes_, name):
    assert promises.size_class(bytes_) == name


def test_what_was_measured_before_is_said_in_a_sentence():
    assert promises.in_words([]) == ""
    assert promises.in_words([ROW]) == "Measured here before, once: it saved 31 %."
    assert (
        promises.in_words([ROW, {**ROW, "measured_likely": -0.1}])
        == "Measured here before, 2 times: it saved −10 to 31 %."
    )
