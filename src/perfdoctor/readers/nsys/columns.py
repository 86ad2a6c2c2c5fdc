"""How does a large SQLite table of integers become numpy columns without a Python object per value? With ADBC's driver.

The driver contains its own SQLite and returns Arrow batches, which nanoarrow reads; pyarrow is not needed. Reasons:
docs/decisions/2026-11-22-sqlite-reader.md and 2026-11-23-nsys-tables-in-parts.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from perfdoctor.model.columns import Ints, Whole

#: 14 columns of this many rows are 2 MB, which fits the processor's cache; larger batches are no faster.
_ROWS_A_BATCH = 16_384
#: int64 in Arrow's format strings.
_INT64 = "l"
#: Text with 32-bit offsets.
_UTF8 = "u"


def can_be_read() -> bool:
    """Are the packages there? They take 0.05 s to import, which processes that are forked then need no more."""
    try:
        import adbc_driver_manager  # noqa: F401, PLC0415
        import adbc_driver_sqlite  # noqa: F401, PLC0415
        import nanoarrow  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


def integer_columns(
    uri: str, sql: str, most_rows: int, texts: Callable[[bytes, Ints], None] | None = None
) -> dict[str, Ints]:
    """The columns of a query by name, in the order of its rows. `uri`: the file as SQLite opens it.

    With `texts` there is another column behind them, of text: each batch of it is handed on, as bytes of all its rows
    and where each row's end.

    The query must cast every value to an integer that is not NULL: the driver takes a column's type from its first
    batch. Raises TypeError if it does not, IndexError where there are more than `most_rows`, and errors of ADBC or
    nanoarrow where the file cannot be read.
    """
    import nanoarrow  # noqa: PLC0415
    from adbc_driver_manager import AdbcConnection, AdbcStatement  # noqa: PLC0415
    from adbc_driver_sqlite import StatementOptions, connect  # noqa: PLC0415

    with connect(uri) as database, AdbcConnection(database) as connection, AdbcStatement(connection) as statement:
        statement.set_options(**{StatementOptions.BATCH_ROWS.value: str(_ROWS_A_BATCH)})
        statement.set_sql_query(sql)
        with nanoarrow.c_array_stream(statement.execute_query()[0]) as stream:
            fields = list(stream.get_schema().children)
            kinds = [field.format for field in fields]
            wanted = [_INT64] * len(fields)
            if texts:
                wanted[-1] = _UTF8
                fields.pop()
            found, rows = [np.empty(most_rows, np.int64) for _ in fields], 0
            for batch in stream:
                if not batch.length:
                    continue
                if kinds != wanted:  # of no rows the driver knows no types
                    raise TypeError(f"columns are {kinds}, not {wanted}")
                if rows + batch.length > most_rows:
                    raise IndexError(f"more than {most_rows} rows")
                columns = _filled(batch)
                if texts:
                    texts(*_text(columns.pop()))
                for column, values in zip(found, columns, strict=True):
                    column[rows : rows + batch.length] = _view(values, np.int64)
                rows += batch.length
    return {field.name: column[:rows] for field, column in zip(fields, found, strict=True)}


def _filled(batch: Any) -> list[Any]:
    """The columns of one Arrow batch, to be copied: nanoarrow's views do not keep their memory alive."""
    view = batch.view()
    columns = [view.child(index) for index in range(view.n_children)]
    if any(column.null_count for column in columns):
        raise TypeError("NULL among values")
    return columns


def _view(column: Any, kind: type[np.signedinteger[Any]], more: int = 0) -> Whole:
    """The values of a column, in its buffer 1: buffer 0 is the validity bitmap."""
    size = np.dtype(kind).itemsize
    return np.frombuffer(column.buffer(1), kind, column.length + more, column.offset * size)


def _text(column: Any) -> tuple[bytes, Ints]:
    """The bytes of all rows of a column of text, and where each row's end."""
    bounds = _view(column, np.int32, more=1)  # one more than there are rows
    begin, end = int(bounds[0]), int(bounds[-1])
    return bytes(memoryview(column.buffer(2))[begin:end]), bounds[1:].astype(np.int64) - begin
