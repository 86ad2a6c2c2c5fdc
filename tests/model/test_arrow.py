"""Other programs read a frame's columns as they are: every signal, every value, without a copy of numbers."""

from __future__ import annotations

import gc
import math

import nanoarrow
import numpy as np
import pytest
from folders import FIXTURES
from recorded import recording

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.columns import Text, constant
from perfdoctor.model.timeline import Frame, Timeline

TIMELINES = [recording(FIXTURES / name).timeline for name in ("straggler/torch", "cuda-graphs/nsys")]
NAMES = ["a", "", "aten::mm\0", "größe", "a", "\ud800x"]


def frame(rows: int = 6) -> Frame:
    return Frame({
        "start_ns": np.arange(rows, dtype=np.int64), "end_ns": constant(7, rows), "share": np.array([1.5, math.nan] * (rows // 2)),
        "is_graph": np.arange(rows) % 3 == 0, "name": Text.of(NAMES[:rows]),
    })  # fmt: skip


def read_back(given: Frame) -> dict[str, list[object]]:
    """By nanoarrow, from the stream alone."""
    stream = nanoarrow.c_array_stream(given)
    names = [child.name for child in nanoarrow.schema(stream._get_cached_schema()).fields]
    rows = [row for array in stream for row in nanoarrow.Array(array).iter_tuples()]
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def same(left: object, right: object) -> bool:
    return left == right or (
        isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right)
    )


def test_every_kind_of_column_arrives() -> None:
    found, given = read_back(frame()), frame().to_numpy()
    assert list(found) == list(given)
    assert found["name"] == ["a", "", "aten::mm\0", "größe", "a", "?x"]
    for name in ("start_ns", "end_ns", "share", "is_graph"):
        assert all(map(same, found[name], given[name].tolist())), name


def test_every_signal_of_a_recording_arrives() -> None:
    for timeline in TIMELINES:
        for signal, each in timeline.frames.items():
            found, given = read_back(each), each.to_numpy()
            assert list(found) == list(given), signal
            for name, values in given.items():
                assert len(found[name]) == len(each)
                assert all(map(same, found[name], values.tolist())), (signal, name)


def test_what_was_handed_over_outlives_the_frame() -> None:
    handed = nanoarrow.Array(nanoarrow.c_array_stream(frame()))
    gc.collect()
    assert [row[0] for row in handed.iter_tuples()] == list(range(6))


def test_values_that_stand_twice_in_a_table_are_one_in_the_dictionary() -> None:
    merged = Text(np.array([0, 1, 2], np.int32), ["a", "b", "a"])
    assert read_back(Frame({"start_ns": np.arange(3), "name": merged}))["name"] == ["a", "b", "a"]


def test_a_column_that_is_not_there_or_of_another_kind_is_an_error_that_says_so() -> None:
    kernels = TIMELINES[0]["kernels"]
    with pytest.raises(PerfdoctorError, match=r"there is no column 'duration'.*duration_ns"):
        kernels["duration"]
    with pytest.raises(PerfdoctorError, match=r"'name' is text.*frame\.text\('name'\)"):
        kernels["name"]
    with pytest.raises(PerfdoctorError, match="'start_ns' is not text"):
        kernels.text("start_ns")


@pytest.mark.parametrize("timeline", TIMELINES, ids=["kineto", "nsys"])
def test_pyarrow_polars_and_duckdb_read_it(timeline: Timeline) -> None:
    pyarrow, polars, duckdb = (pytest.importorskip(name) for name in ("pyarrow", "polars", "duckdb"))
    for signal, each in timeline.frames.items():
        table = pyarrow.table(each)
        table.validate(full=True)
        assert table.num_rows == len(each), signal
        assert table.column_names == list(each.columns)
    kernels = timeline["kernels"]
    address = pyarrow.table(kernels)["start_ns"].chunk(0).buffers()[1].address
    assert address == kernels.start_ns.ctypes.data, "numbers are numpy's own memory"
    asked = pyarrow.table(kernels).schema
    assert pyarrow.table(kernels, schema=asked).schema == asked
    by_name = dict(polars.DataFrame(kernels).group_by("name").agg(polars.len()).iter_rows())
    expected = {name: int(kernels.name.equals(name).sum()) for name in set(kernels.name)}
    assert {str(name): count for name, count in by_name.items()} == expected
    assert dict(duckdb.sql("SELECT name, count(*) FROM kernels GROUP BY name").fetchall()) == expected
