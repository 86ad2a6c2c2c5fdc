"""Names of ops are found once for each op and its shapes, not once for each number that an op has of its own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.readers.nsys import columns as nsys_columns
from perfdoctor.readers.nsys import tables as nsys_tables
from perfdoctor.readers.nsys.range_names import RangeNames, decoded, op_parts
from perfdoctor.readers.nsys.tables import Database
from perfdoctor.system import forked

PIECES = st.sampled_from([
    "aten::add", "aten::mm", "AddBackward0", "mine", "", ", seq = 7", ", seq = 8", ", op_id = 12", ", op_id = 1x",
    ", sizes = [[2, 3], []]", ", sizes = []", ", input_op_ids = [(3,0), (4,0)]", ", foo = 1", " ", "seq = 5", "é", "\x00",
])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=5).map("".join)


def names(*batches: list[bytes]) -> RangeNames:
    found = RangeNames()
    for texts in batches:
        ended = [text + b"\x00" for text in texts]
        found.add(b"".join(ended), np.array(list(accumulate(map(len, ended))), np.int64))
    return found


def shown(texts: list[str]) -> list[tuple[str, str] | str]:
    return [op_parts(text) or text for text in texts]


@given(st.lists(st.lists(TEXTS, max_size=8), max_size=3))
def test_without_their_numbers_texts_name_the_same_ops_and_ranges_stay_as_they_are(batches):
    found = names(*([text.encode() for text in batch] for batch in batches)).text()
    assert shown(list(found)) == shown([text for batch in batches for text in batch])
    assert len(set(found.values)) == len(found.values)


@given(st.lists(st.binary(max_size=4), max_size=8))
def test_any_bytes_are_texts(texts):
    assert list(names(texts).text()) == [decoded(text) for text in texts]


def test_a_thousand_ops_of_two_kinds_are_two_texts():
    texts = [
        f"aten::{'add' if row % 2 else 'mm'}, seq = {row}, op_id = {row + 9}, sizes = [[4]]" for row in range(1_000)
    ]
    found = names([text.encode() for text in texts[:400]], [text.encode() for text in texts[400:]]).text()
    assert found.values == ["aten::mm, sizes = [[4]]", "aten::add, sizes = [[4]]"]
    assert found.codes.tolist() == [0, 1] * 500


_VALUES = st.one_of(st.none(), TEXTS, st.binary(max_size=9), st.integers(-9, 9))


@given(rows=st.lists(_VALUES, min_size=1, max_size=40))
def test_any_texts_are_read_alike_both_ways(tmp_path_factory, rows):
    pytest.importorskip("nanoarrow", reason="this environment is older than the dependency: pip install .")
    path = tmp_path_factory.mktemp("texts") / "t.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (start INTEGER, text TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", enumerate(rows))
    expected = ["" if row is None else decoded(row) if isinstance(row, bytes) else str(row) for row in rows]
    for worth in (1, 10**9):
        with pytest.MonkeyPatch.context() as patched, closing(Database.open(path)) as database:
            patched.setattr(nsys_tables, "ROWS_WORTH_ADBC", worth)
            patched.setattr(nsys_columns, "_ROWS_A_BATCH", 7)
            database.read_ahead({"t": ("start", "end")}, {"t": "text"})
            assert database.is_fast, "ADBC could not read it"
            assert bool(database.names_ahead) == (worth == 1)
            columns, found = database.integers("t", ("start", "end")), database.ranges("t", "text")
        assert shown(list(found)) == shown(expected)
        assert columns["start"].tolist() == list(range(len(rows)))
        assert columns["end"].tolist() == [nsys_tables.NONE] * len(rows)


@pytest.mark.parametrize("extra", [0, 2])
def test_parts_read_by_several_processes_are_the_whole_table(tmp_path, monkeypatch, extra):
    pytest.importorskip("nanoarrow", reason="this environment is older than the dependency: pip install .")
    path, rows = tmp_path / "t.sqlite", [*range(-40, 90), *range(300, 340), 1_000]
    texts = [f"aten::{row % 3}, op_id = {abs(row)}" if row % 2 else f"mine {row % 5}" for row in rows]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (start INTEGER, text TEXT)")
        connection.executemany(
            "INSERT INTO t (rowid, start, text) VALUES (?, ?, ?)", zip(rows, rows, texts, strict=True)
        )
    for name, value in {"ROWS_WORTH_ADBC": 1, "_ROWS_A_PART": 7, "_MOST_PARTS": 20}.items():
        monkeypatch.setattr(nsys_tables, name, value)
    monkeypatch.setattr(forked, "extra_processes", lambda: extra)
    with closing(Database.open(path)) as database:
        database.read_ahead({"t": ("start",), "missing": ("start",)}, {"t": "text"})
        assert (len(database.columns_ahead["t"]["start"]), database.is_fast) == (len(rows), True)
        names = database.names_ahead["t"]
        assert shown(list(names)) == shown(texts)
        assert [names.values[0], len(names.values)] == ["mine 0", 8]
        assert database.integers("t", ("start",))["start"].tolist() == rows
        assert not database.columns_ahead


def test_a_table_of_which_a_part_cannot_be_read_fast_is_read_by_sqlite3(tmp_path, monkeypatch):
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (start INTEGER, text TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(row, f"mine {row}") for row in range(20)])
    monkeypatch.setattr(nsys_tables, "ROWS_WORTH_ADBC", 1)
    monkeypatch.setattr(nsys_tables, "_ROWS_A_PART", 7)
    monkeypatch.setattr(forked, "extra_processes", lambda: 1)
    fast = nsys_tables.integer_columns

    def failing(uri: str, sql: str, *more: object) -> object:
        if "BETWEEN 8" in sql:
            raise OSError
        return fast(uri, sql, *more)

    monkeypatch.setattr(nsys_tables, "integer_columns", failing)
    with closing(Database.open(path)) as database:
        database.read_ahead({"t": ("start",)}, {"t": "text"})
        assert not database.is_fast
        assert database.integers("t", ("start",))["start"].tolist() == list(range(20))
        assert list(database.ranges("t", "text")) == [f"mine {row}" for row in range(20)]
