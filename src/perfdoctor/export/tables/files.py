"""How are tables written as files of Parquet and Arrow? Batch by batch, so that memory does not grow with the rows.

arro3 writes both: 12 MB where pyarrow has 55 (docs/decisions/2026-11-23-timeline-as-tables.md). Names are written out,
and the formats compress them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.export.tables.batches import Field, batches, schema
from perfdoctor.export.tables.contents import RecordingTables, is_missing
from perfdoctor.model.columns import Text
from perfdoctor.vocabulary.signals import EVENTS, SIGNALS
from perfdoctor.vocabulary.tables import tables, views

#: The one table of an Arrow file.
ALL_EVENTS = "events"
#: Rows of a row group of Parquet: what a reader skips, or holds, at once.
_GROUP_ROWS = 1 << 20


def check() -> None:
    """Raises PerfdoctorError where the extra is not installed."""
    try:
        import arro3.core  # noqa: PLC0415
        import arro3.io  # noqa: F401, PLC0415
    except ImportError as error:
        raise PerfdoctorError("arro3 is not installed", do="Run: pip install 'perfdoctor[arrow]'.") from error


def write_parquet(file: Path, contents: RecordingTables, table: str) -> None:
    """Write one table as Parquet. Raises OSError."""
    import arro3.io  # noqa: PLC0415

    with file.open("wb") as stream:
        arro3.io.write_parquet(_reader(contents, table), stream, compression="zstd(1)", max_row_group_size=_GROUP_ROWS)


def write_arrow(file: Path, contents: RecordingTables, table: str = ALL_EVENTS) -> None:
    """Write one table in Arrow's IPC file format. Raises OSError."""
    import arro3.io  # noqa: PLC0415

    with file.open("wb") as stream:
        arro3.io.write_ipc(_reader(contents, table), stream)


def answer_as_parquet(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """Rows of numbers, texts and None as a Parquet file. A column of both numbers and texts becomes one of texts.

    Columns of one name are numbered, since Parquet's readers find them by name: `name`, `name_2`.
    """
    import arro3.core  # noqa: PLC0415
    import arro3.io  # noqa: PLC0415

    fields: dict[str, Field] = {}
    for at, name in enumerate(names):
        again = names[:at].count(name)
        fields[f"{name}_{again + 1}" if again else name] = _answer_field([row[at] for row in rows])
    pieces = map(arro3.core.RecordBatch.from_arrow, batches(fields))
    stream = io.BytesIO()
    reader = arro3.core.RecordBatchReader.from_batches(arro3.core.Schema.from_arrow(schema(fields)), pieces)
    arro3.io.write_parquet(reader, stream, compression="zstd(1)", max_row_group_size=_GROUP_ROWS)
    return stream.getvalue()


def _answer_field(values: list[Any]) -> Field:
    missing = np.array([value is None for value in values], bool)
    kinds = {type(value) for value in values if value is not None}
    if kinds - {int, float}:
        return Field(Text.of(["" if value is None else str(value) for value in values]))
    kind = np.float64 if float in kinds else np.int64
    return Field(np.array([0 if value is None else value for value in values], kind), missing)


def _reader(contents: RecordingTables, table: str) -> Any:
    """Stream the table as batches, each made when it is asked for."""
    import arro3.core  # noqa: PLC0415

    names = EVENTS if table == ALL_EVENTS else (table,)
    first = _fields(contents, names[0], table)

    def rows() -> Iterator[Any]:
        for name in names:
            yield from map(arro3.core.RecordBatch.from_arrow, batches(_fields(contents, name, table)))

    return arro3.core.RecordBatchReader.from_batches(arro3.core.Schema.from_arrow(schema(first)), rows())


def _fields(contents: RecordingTables, name: str, as_table: str) -> dict[str, Field]:
    """Fields of the table `name`, with the columns that `as_table` has: the table itself, or that of all events."""
    wanted = views()[ALL_EVENTS] if as_table == ALL_EVENTS else tables()[name]
    made, length, found = contents.columns(name), contents.row_count(name), {}
    for column, declared in wanted.columns.items():
        if column in made:
            values = made[column]()
            found[column] = Field(values, is_missing(tables()[name], column, values))
        elif column == "kind":
            found[column] = Field(Text.constant(SIGNALS[name].event, length))
        else:
            assert declared.kind is int
            found[column] = Field(np.zeros(length, np.int64), np.ones(length, dtype=bool))
    return found
