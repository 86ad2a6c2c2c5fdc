"""How is the timeline written as an SQLite database?

sqlite-utils makes the tables, their keys, the views and the indexes; ADBC's driver fills them with Arrow batches, twice
as fast as rows of Python objects (docs/decisions/2026-11-23-timeline-as-tables.md). Names of kernels and ops are long
and come again: each is held once, in `texts`. What is documented as the table `kernels` is a view of `_kernels`, which
has numbers of texts, with `texts`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfdoctor.export.tables.batches import Field, Texts, batches
from perfdoctor.export.tables.contents import FORMAT, RecordingTables, is_missing
from perfdoctor.model.columns import Text
from perfdoctor.system.own_process import database
from perfdoctor.vocabulary.tables import ExportedTable, tables, views

if TYPE_CHECKING:
    from sqlite_utils.db import Database

#: `PRAGMA application_id` of our files: "pdtl" in ASCII.
APPLICATION_ID = 0x7064746C
#: What an SQLite file begins with, and where its application_id is (https://sqlite.org/fileformat2.html).
_SQLITE, _APPLICATION, _HEAD = b"SQLite format 3\x00", slice(68, 72), 100
_PAGE_BYTES = 8192
#: In KiB, as PRAGMA cache_size has it below 0.
_CACHE = -65_536
#: A file that is not whole is removed: neither a journal nor waiting for the disk would save it.
_PRAGMAS = ("journal_mode = OFF", "synchronous = OFF", f"cache_size = {_CACHE}")
#: Of each index: enough for SQLite to choose between them.
_ANALYSED_ROWS = 1_000
#: What rows are looked up by, in tables that have it: an index costs as much time as the rows themselves.
_INDEXED = ("launch_id", "step_id", "parent_id", "op_id", "range_id", "module_id")

#: Rows that a database has in these columns, by table.
Wanted = Mapping[str, Collection[str]]


def is_exported(path: Path) -> bool:
    """Is it a database that `write` wrote?"""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return head.startswith(_SQLITE) and int.from_bytes(head[_APPLICATION], "big") == APPLICATION_ID


def everything() -> Wanted:
    return {name: tuple(table.columns) for name, table in tables().items()}


def has_texts(table: ExportedTable) -> bool:
    """Are its texts held once each? Those of signals and launches, which may have millions of rows."""
    return bool(table.signal) or table.name == "launches"


def base(table: ExportedTable) -> str:
    """The table in the file that its rows are in."""
    return f"_{table.name}" if has_texts(table) else table.name


def write(file: Path, contents: RecordingTables, wanted: Wanted | None = None, *, indexed: bool = True) -> None:
    """Write a new database with all tables. `wanted`: only these tables have rows, and of them only these columns.

    Raises OSError or sqlite3.Error where it cannot be written.
    """
    create(file)
    fill(file, contents, everything() if wanted is None else wanted, Texts())
    if indexed:
        add_indexes(file)


def create(file: Path) -> None:
    """Create all tables and views, without rows."""
    with opened(file) as db:
        db.conn.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        db.conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.conn.execute(f"PRAGMA user_version = {FORMAT}")
        db.conn.execute("BEGIN")
        db.table("texts").create({"id": int, "text": str}, pk="id")
        for table in _referred_first():
            _create(db, table)
        for table in tables().values():
            if has_texts(table):
                db.create_view(table.name, _with_texts(table))
        for view in views().values():
            db.create_view(view.name, view.query)
        db.conn.execute("COMMIT")


@contextmanager
def opened(file: Path) -> Iterator[Database]:
    """Open the file to change its tables."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        yield database(connection)


def _referred_first() -> Iterator[ExportedTable]:
    """The tables, each after those whose ids it has."""
    left = dict(tables())
    while left:
        for name, table in list(left.items()):
            if not any(column.refers in left and column.refers != name for column in table.columns.values()):
                yield left.pop(name)


def _create(db: Database, table: ExportedTable) -> None:
    kinds: dict[str, type] = {}
    for name, column in table.columns.items():
        kept = stored(table, name)
        kinds[kept] = int if column.kind is bool or kept != name else column.kind
    keys: list[Any] = [
        (stored(table, name), base(tables()[column.refers]) if column.refers else "texts", "id")
        for name, column in table.columns.items()
        if column.refers or stored(table, name) != name
    ]
    db.table(base(table)).create(kinds, pk="id", foreign_keys=keys)


def stored(table: ExportedTable, name: str) -> str:
    """A column's name in the base table."""
    return f"{name}_id" if has_texts(table) and table.columns[name].kind is str else name


def _with_texts(table: ExportedTable) -> str:
    """Query of the documented table: rows with their texts. SQLite leaves out joins whose text nobody asks for."""
    rows, columns, joins = base(table), [], ""
    for name in table.columns:
        kept = stored(table, name)
        if kept == name:
            columns.append(f"{rows}.{name}")
            continue
        columns.append(f"of_{name}.text AS {name}")
        joins += f" LEFT JOIN texts AS of_{name} ON of_{name}.id = {rows}.{kept}"
    return f"SELECT {', '.join(columns)} FROM {rows}{joins}"  # noqa: S608


def fill(file: Path, contents: RecordingTables, wanted: Wanted, texts: Texts) -> None:
    """Write rows into empty tables. `texts`: those that the file has already."""
    from adbc_driver_manager import AdbcConnection, AdbcStatement  # noqa: PLC0415
    from adbc_driver_sqlite import connect  # noqa: PLC0415

    known = len(texts)
    with connect(file.resolve().as_uri()) as database, AdbcConnection(database) as connection:
        for pragma in _PRAGMAS:
            with AdbcStatement(connection) as statement:
                statement.set_sql_query(f"PRAGMA {pragma}")
                statement.execute_update()
        connection.set_autocommit(False)
        for name, columns in wanted.items():
            table = tables()[name]
            _ingest(connection, base(table), _fields(contents, table, columns, texts))
        _ingest(connection, "texts", texts.since(known))
        connection.commit()


def _fields(
    contents: RecordingTables, table: ExportedTable, columns: Collection[str], texts: Texts
) -> dict[str, Field]:
    """The columns as the base table has them; the id is always there, since rows are found by it."""
    made, found = contents.columns(table.name), {}
    for name in table.columns:
        if name != "id" and name not in columns:
            continue
        values = made[name]()
        kept = stored(table, name)
        if isinstance(values, Text):
            found[kept] = texts.numbered(values) if kept != name else Field(values)
        else:
            flat = values.view("u1") if values.dtype == bool else values
            found[kept] = Field(flat, is_missing(table, name, values))
    return found


def _ingest(connection: Any, table: str, fields: Mapping[str, Field]) -> None:
    from adbc_driver_manager import AdbcStatement, StatementOptions  # noqa: PLC0415

    with AdbcStatement(connection) as statement:
        for batch in batches(fields):
            statement.set_options(**{
                StatementOptions.INGEST_TARGET_TABLE.value: table,
                StatementOptions.INGEST_MODE.value: "adbc.ingest.mode.append",
            })  # fmt: skip
            statement.bind(batch)
            statement.execute_update()


def add_indexes(file: Path, only: Collection[str] | None = None) -> None:
    """Create indexes on the columns by which rows are looked up. `only`: those with these names."""
    with opened(file) as db:
        db.conn.execute("BEGIN")
        for name, (table, column) in _indexes().items():
            if only is None or name in only:
                db.table(table).create_index([column], name)
        db.conn.execute("COMMIT")
        db.conn.execute(f"PRAGMA analysis_limit = {_ANALYSED_ROWS}")
        db.conn.execute("ANALYZE")


def drop_indexes(file: Path) -> None:
    with opened(file) as db:
        db.conn.execute("BEGIN")
        for name in _indexes():
            db.conn.execute(f"DROP INDEX {name}")
        db.conn.execute("COMMIT")


def _indexes() -> dict[str, tuple[str, str]]:
    """The table and column of each index by its name."""
    return {
        f"by_{name}_of_{table.name}": (base(table), name)
        for table in tables().values()
        for name in _INDEXED
        if name in table.columns
    }
