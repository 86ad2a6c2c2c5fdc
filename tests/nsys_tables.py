"""A SQLite export as the folders of tables that nsys writes of the same report: its names, numbers and types."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import arro3.core
import arro3.io

#: As nsys 2023.4 declares them; other whole numbers are int64 in Parquet.
_UNSIGNED = {"globalPid", "globalTid", "streamId", "nameId", "demangledName", "shortName", "mangledName", "utcEpochNs"}


def written(export: Path, folder: Path, ending: str) -> Path:
    """The folder, with a file of this ending (`.parquet` or `.arrow`) for each table but META_DATA_CAPTURE."""
    folder.mkdir(parents=True)
    database = sqlite3.connect(f"file:{export}?mode=ro", uri=True)
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        if table == "META_DATA_CAPTURE":  # nsys writes it into SQLite files alone
            continue
        columns = {row[1]: row[2] for row in database.execute(f'PRAGMA table_info("{table}")')}
        rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
        values = zip(*rows, strict=True) if rows else ([] for _ in columns)
        batch = arro3.core.RecordBatch.from_arrays(
            [_array(name, kind, list(column)) for (name, kind), column in zip(columns.items(), values, strict=True)],
            names=list(columns),
        )
        with (folder / f"{table}{ending}").open("wb") as stream:
            (arro3.io.write_parquet if ending == ".parquet" else arro3.io.write_ipc_stream)(batch, stream)
    database.close()
    return folder


def _array(name: str, kind: str, values: list[object]) -> arro3.core.Array:
    if name in _UNSIGNED:
        return arro3.core.Array(
            [None if v is None else int(str(v)) % (1 << 64) for v in values], arro3.core.DataType.uint64()
        )
    if kind == "INTEGER":
        return arro3.core.Array(values, arro3.core.DataType.int64())
    if kind in ("REAL", "FLOAT"):
        return arro3.core.Array(values, arro3.core.DataType.float64())
    return arro3.core.Array([None if v is None else str(v) for v in values], arro3.core.DataType.utf8())
