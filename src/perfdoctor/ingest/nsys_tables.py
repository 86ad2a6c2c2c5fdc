"""How are the tables of a SQLite file read into columns, read-only and quickly?

The tables of an Nsight Systems export have no index, and their columns differ by version, so a table is read whole, with
the columns that it has.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from perfdoctor.errors import PerfdoctorError

Ints = npt.NDArray[np.int64]

#: Importing connectorx and pyarrow costs about 0.3 s, in which sqlite3 reads 150,000 rows: smaller tables go without.
_ROWS_WORTH_CONNECTORX = 200_000
_VERSIONED = re.compile(r"^(?P<table>.+)_V(?P<version>\d+)$")


@dataclass(frozen=True)
class Database:
    """A SQLite file opened read-only: nothing is written to it, nor beside it (`immutable` keeps -wal and -shm away)."""

    path: Path
    connection: sqlite3.Connection

    @classmethod
    def open(cls, path: Path) -> Database:
        """Raises PerfdoctorError where the file is damaged or no database."""
        try:
            connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
            connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            raise PerfdoctorError(
                f"{path.name} is a damaged SQLite file ({error})", do="Export the report again, or copy the file again."
            ) from error
        return cls(path, connection)

    @cached_property
    def tables(self) -> Mapping[str, str]:
        """Plain table names to those in the file: of `X`, `X_V2` and `X_V3` the highest version is X."""
        best: dict[str, tuple[int, str]] = {}
        for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"):
            versioned = _VERSIONED.match(name)
            plain, version = (versioned["table"], int(versioned["version"])) if versioned else (name, 0)
            if plain not in best or version > best[plain][0]:
                best[plain] = (version, name)
        return {plain: name for plain, (_, name) in best.items()}

    def __contains__(self, table: str) -> bool:
        return table in self.tables

    def columns_of(self, table: str) -> frozenset[str]:
        if table not in self.tables:
            return frozenset()
        return frozenset(row[1] for row in self.connection.execute(f'PRAGMA table_info("{self.tables[table]}")'))

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Small tables as they are; [] where the file is damaged there."""
        try:
            return self.connection.execute(sql).fetchall()
        except sqlite3.Error:
            return []

    def integers(self, table: str, wanted: Sequence[str], missing: int) -> dict[str, Ints] | None:
        """The wanted columns as int64, `missing` for NULL and for a column that the table lacks; None if unreadable.

        Raises sqlite3.Error where a damaged file cannot be read in this table.
        """
        present = [name for name in wanted if name in self.columns_of(table)]
        count = int(self.connection.execute(f'SELECT count(*) FROM "{self.tables[table]}"').fetchone()[0])
        # Casting in SQL gives each column one type, whatever a row holds.
        fields = [f'CAST(coalesce("{name}", {missing}) AS INTEGER) AS "{name}"' for name in present]
        found = self._read(f'SELECT {", ".join(fields)} FROM "{self.tables[table]}"', present, count) if present else {}
        return {name: found.get(name, np.full(count, missing, dtype=np.int64)) for name in wanted}

    def _read(self, sql: str, names: Sequence[str], count: int) -> dict[str, Ints]:
        if count >= _ROWS_WORTH_CONNECTORX:
            fast = self._read_with_connectorx(sql)
            if fast is not None:
                return fast
        rows = np.array(self.connection.execute(sql).fetchall(), dtype=np.int64).reshape(-1, len(names))
        return {name: np.ascontiguousarray(rows[:, index]) for index, name in enumerate(names)}

    def _read_with_connectorx(self, sql: str) -> dict[str, Ints] | None:
        """None where connectorx cannot: its paths and types are narrower than sqlite3's."""
        try:
            import connectorx  # costs 0.3 s with pyarrow

            table = connectorx.read_sql(f"sqlite://{quote(str(self.path.resolve()))}", sql, return_type="arrow")
            return {name: table.column(name).to_numpy().astype(np.int64) for name in table.column_names}
        except Exception:  # noqa: BLE001 Rust panics reach Python under several types; the slow way always works
            return None
