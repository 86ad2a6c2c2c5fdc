"""How does a large SQLite table of integers become numpy columns without a Python object per value? With ADBC's driver.

The driver contains its own SQLite and returns Arrow batches, which nanoarrow reads; pyarrow is not needed. Reasons:
 docs/decisions/2026-11-22-sqlite-reader.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfdoctor.model.columns import Ints

#: 14 columns of this many rows are 2 MB, which fits the processor's cache; larger batches are no faster.
_ROWS_A_BATCH = 16_384
#: int64 in Arrow's format strings.
_INT64 = "l"


def integer_columns(uri: str, sql: str) -> dict[str, Ints]:
    """The columns of a query by name, in the order of its rows. `uri`: the file as SQLite opens it.

    The query must cast every value to an integer that is not NULL: the driver takes a column's type from its first
    batch. Raises TypeError if it does not, and errors of ADBC or nanoarrow where the file cannot be read.
    """
    import nanoarrow  # noqa: PLC0415 both take 0.05 s, more than small tables save
    from adbc_driver_manager import AdbcConnection, AdbcStatement  # noqa: PLC0415
    from adbc_driver_sqlite import StatementOptions, connect  # noqa: PLC0415

    with connect(uri) as database, AdbcConnection(database) as connection, AdbcStatement(connection) as statement:
        statement.set_options(**{StatementOptions.BATCH_ROWS.value: str(_ROWS_A_BATCH)})
        statement.set_sql_query(sql)
        with nanoarrow.c_array_stream(statement.execute_query()[0]) as stream:
            fields = list(stream.get_schema().children)
            if other := [field.name for field in fields if field.format != _INT64]:
                raise TypeError(f"not all integers: {', '.join(other)}")
            batches = [_copied(batch) for batch in stream if batch.length]
    columns = zip(*batches, strict=True) if batches else ((np.empty(0, np.int64),) for _ in fields)
    return {field.name: np.concatenate(parts) for field, parts in zip(fields, columns, strict=True)}


def _copied(batch: Any) -> list[Ints]:
    """The columns of one Arrow batch, copied: nanoarrow's views do not keep their memory alive."""
    view = batch.view()
    columns = [view.child(index) for index in range(view.n_children)]
    if any(column.null_count for column in columns):
        raise TypeError("NULL among integers")
    # Buffer 0 of an integer column is the validity bitmap, buffer 1 holds the values.
    return [np.frombuffer(c.buffer(1), np.int64, c.length, c.offset * 8).copy() for c in columns]
