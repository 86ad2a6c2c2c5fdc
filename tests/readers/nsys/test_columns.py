"""Large tables read through ADBC agree with sqlite3: every type that a column may hold, and every recording."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from folders import FIXTURES, public_files
from hypothesis import given
from hypothesis import strategies as st
from recorded import of_recordings

from perfdoctor.readers.nsys import columns as nsys_columns
from perfdoctor.readers.nsys import tables as nsys_tables
from perfdoctor.readers.nsys.tables import NONE, Database

pytest.importorskip("nanoarrow", reason="this environment is older than the dependency: pip install .")

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
BATCH = 7
#: Columns of two kinds have one kind for more than a batch.
COLUMNS: dict[str, list[object]] = {
    "extremes": [LOWEST, HIGHEST, -1, 0, 1, LOWEST + 1, HIGHEST - 1, (1 << 53) + 1] * 5,
    "nothing": [None] * 40,
    "nothing_then_integers": [None] * 20 + list(range(20)),
    "integers_then_nothing": list(range(20)) + [None] * 20,
    "integers_then_reals": list(range(20)) + [1.5, -2.5, 1e300, -1e300, 0.1] * 4,
    "integers_then_texts": list(range(20)) + ["12", "12 kernels", "", "NaN", "ä"] * 4,
    "nothing_then_texts": [None] * 20 + ["9223372036854775808", "-7", "0x10", " 8", "1e3"] * 4,
    "reals_then_integers": [0.5] * 20 + [HIGHEST] * 20,
    "blobs": [b"", b"5", b"\xff\xfe", b"17\x00", None] * 8,
    "not_utf8": ["x"] * 20 + [b"g\xffm", b"\xff", b"31\xff"] * 6 + [None] * 2,
}


def table_of(columns: dict[str, list[object]], path: Path, types: str = "") -> Path:
    """A file with one table `t`."""
    with sqlite3.connect(path) as connection:
        declared = ", ".join(f'"{name}" {types}' for name in columns)
        connection.execute(f"CREATE TABLE t ({declared})")
        values = ", ".join("CAST(? AS TEXT)" if name == "not_utf8" else "?" for name in columns)
        connection.executemany(f"INSERT INTO t VALUES ({values})", zip(*columns.values(), strict=True))
    connection.close()
    return path


def by_sqlite3(path: Path, column: str) -> list[int]:
    """A column value by value, each with its own cast."""
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    values = [value for (value,) in connection.execute(f'SELECT "{column}" FROM t')]
    cast = [NONE if v is None else connection.execute("SELECT CAST(? AS INTEGER)", (v,)).fetchone()[0] for v in values]
    connection.close()
    return cast


def read(path: Path, table: str, monkeypatch: pytest.MonkeyPatch, worth: int) -> nsys_tables.Columns:
    monkeypatch.setattr(nsys_tables, "ROWS_WORTH_ADBC", worth)
    with closing(Database.open(path)) as database:
        wanted = sorted(database.columns_of(table))
        database.read_ahead({table: wanted}, {})
        assert bool(database.columns_ahead) == (worth <= 1 and database.has_rows(table))
        columns = database.integers(table, wanted)
        assert database.is_fast, "ADBC could not read it"
    return columns


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):  # so that types differ between batches
    monkeypatch.setattr(nsys_columns, "_ROWS_A_BATCH", BATCH)


@pytest.mark.parametrize("types", ["", "INTEGER", "REAL", "TEXT"])
@pytest.mark.parametrize("worth", [1, 10**18], ids=["adbc", "sqlite3"])
def test_columns_of_any_mixture_are_what_sqlite3_casts_each_value_to(tmp_path, monkeypatch, types, worth):
    path = table_of(COLUMNS, tmp_path / "t.sqlite", types)
    columns = read(path, "t", monkeypatch, worth)
    for name in COLUMNS:
        assert columns[name].tolist() == by_sqlite3(path, name), name
        assert columns[name].dtype == np.int64


_VALUES = st.one_of(st.none(), st.integers(LOWEST, HIGHEST), st.floats(), st.text(max_size=9), st.binary(max_size=9))


@given(rows=st.lists(st.tuples(_VALUES, _VALUES), min_size=1, max_size=40))
def test_any_rows_are_read_alike_both_ways(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "t.sqlite"
    table_of({"a": [a for a, _ in rows], "b": [b for _, b in rows]}, path)
    with pytest.MonkeyPatch.context() as monkeypatch:
        fast, slow = (read(path, "t", monkeypatch, worth) for worth in (1, 10**18))
    assert {name: column.tolist() for name, column in fast.items()} == {n: c.tolist() for n, c in slow.items()}


@pytest.mark.parametrize("rows", [0, 1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH])
def test_any_number_of_rows_is_read(tmp_path, rows):
    path = table_of({"a": list(range(rows)), "b": [5] * rows}, tmp_path / "t.sqlite")
    columns = nsys_columns.integer_columns(path.as_uri(), "SELECT a, b FROM t", rows)
    assert {name: column.tolist() for name, column in columns.items()} == {"a": list(range(rows)), "b": [5] * rows}
    assert {column.dtype for column in columns.values()} == {np.dtype(np.int64)}


@pytest.mark.parametrize("values", [["text"], [1.5], [None, 1], [1] * BATCH + [None]])
def test_a_query_that_does_not_cast_is_refused(tmp_path, values):
    path = table_of({"a": values}, tmp_path / "t.sqlite")
    with pytest.raises(TypeError):
        nsys_columns.integer_columns(path.as_uri(), "SELECT a FROM t", len(values))


def test_columns_outlive_the_file_and_may_be_written_to(tmp_path):
    path = table_of({"a": list(range(1000))}, tmp_path / "t.sqlite")
    column = nsys_columns.integer_columns(path.as_uri(), "SELECT a FROM t", 1_000)["a"]
    path.unlink()
    again = [np.full(1000, -1) for _ in range(100)]  # so that freed memory is used again
    assert column.tolist() == list(range(1000))
    column += again[0]
    assert column.sum() == 499500 - 1000


@of_recordings([*sorted(FIXTURES.rglob("*.sqlite")), *public_files("**/*.sqlite")])
def test_every_table_of_every_export_is_read_alike_both_ways(path, monkeypatch):
    monkeypatch.setattr(nsys_columns, "_ROWS_A_BATCH", 1000)
    compared = 0
    with closing(Database.open(path)) as database:
        tables = database.tables
    for table in tables:
        fast, slow = (read(path, table, monkeypatch, worth) for worth in (0, 10**18))
        assert fast.keys() == slow.keys()
        for name, column in fast.items():
            assert np.array_equal(column, slow[name]), (table, name)
        compared += len(fast)
    assert compared


def test_more_rows_than_expected_are_refused(tmp_path):
    path = table_of({"a": list(range(3 * BATCH))}, tmp_path / "t.sqlite")
    with pytest.raises(IndexError):
        nsys_columns.integer_columns(path.as_uri(), "SELECT a FROM t", 3 * BATCH - 1)
