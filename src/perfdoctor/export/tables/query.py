"""What does a recording answer to a question in SQL? Read only, and within limits of time and memory.

A recording's tables are written to a file of their own in the temporary folder: only those that the question names, and
of them only the columns that it names. The file, or an exported database, is then opened so that SQLite itself refuses
to write (mode=ro), and every statement is refused that is not a question: it may read and compute, nothing else.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perfdoctor.diagnosis.records import Examination
from perfdoctor.errors import PerfdoctorError
from perfdoctor.export.tables import database, functions
from perfdoctor.export.tables.batches import Texts
from perfdoctor.export.tables.contents import RecordingTables, left_out
from perfdoctor.export.tables.refusals import Limits, explained
from perfdoctor.model.run import Run
from perfdoctor.patterns import regex
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.query_result import QueryResult
from perfdoctor.vocabulary.tables import tables

if TYPE_CHECKING:
    from perfdoctor.system.remote import RemoteFile

#: How many rows an answer has, and how long it may take, unless it is said.
LIMIT, SECONDS = 1_000, 60.0
#: More than any answer has.
ALL = 10_000_000
#: Of SQLite's memory in this process, and of all texts of an answer. Sorting goes to temporary files before.
_HEAP_BYTES, _ANSWER_BYTES = 1 << 30, 64 << 20
#: Of one text or blob, of the question, and of a LIKE pattern, whose cost may grow with its square.
_TEXT_BYTES, _SQL_BYTES, _PATTERN_BYTES = 16 << 20, 100_000, 1_000
_LIMITS = Limits(SECONDS, _HEAP_BYTES, _TEXT_BYTES, _SQL_BYTES, _PATTERN_BYTES)
#: So many instructions of SQLite take about a millisecond; then the time that is left is checked.
_INSTRUCTIONS = 20_000

#: What a question may do: read, compute, recurse. All other actions are refused.
_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
_USED = regex(r"USING (?:COVERING )?INDEX (\w+)")
_REFUSED_FUNCTIONS = ("load_extension", "fts3_tokenizer", "readfile", "writefile", "edit")


def query_paths(
    paths: Sequence[Path | RemoteFile], sql: str, progress: Callable[[str], None],
    *, limit: int = LIMIT, seconds: float = SECONDS, process: int | None = None,
) -> QueryResult:  # fmt: skip
    """Answer as `query`, on what is recorded in these files, or on the one database among them."""
    first = paths[0]
    if len(paths) == 1 and isinstance(first, Path) and database.is_exported(first):
        return query(first, sql, limit=limit, seconds=seconds)
    from perfdoctor.scale.read import read_run  # noqa: PLC0415 a database needs no reader

    run = read_run(paths, progress, process=process)
    progress("Asking")
    return query(run, sql, limit=limit, seconds=seconds)


def query(of: Run | Examination | Path, sql: str, *, limit: int = LIMIT, seconds: float = SECONDS) -> QueryResult:
    """Answer SELECT, WITH or VALUES on the tables of docs/tables.md.

    `of`: a prepared run, an examination (then findings are those that it has, else all rules are asked where the
    question names findings), or a database that `perfdoctor export --sqlite` wrote. Raises PerfdoctorError where the
    question is not understood, is no question, or takes too long.
    """
    if isinstance(of, Path):
        return _asked(of, sql, limit, seconds)
    with tempfile.TemporaryDirectory(prefix="perfdoctor-") as folder:
        file = Path(folder) / "tables.db"
        database.create(file)
        database.add_indexes(file)  # of tables without rows: which ones would SQLite use?
        wanted, used = _named(file, sql), _indexes_used(file, sql)
        database.drop_indexes(file)
        run = of.run if isinstance(of, Examination) else of
        database.fill(file, RecordingTables(run, lambda: _diagnosis(of)), wanted, Texts())
        database.add_indexes(file, used)
        return replace(_asked(file, sql, limit, seconds), note=left_out(run, wanted))


def _diagnosis(of: Run | Examination) -> Diagnosis:
    if isinstance(of, Examination):
        return of.diagnosis
    from perfdoctor.diagnosis.engine import examine  # noqa: PLC0415 few questions are about findings
    from perfdoctor.vocabulary.rulebook import load_rules  # noqa: PLC0415

    return examine(of, list(load_rules().values())).diagnosis


def _named(file: Path, sql: str) -> dict[str, set[str]]:
    """Tables that the question `sql` reads, each with the columns that it names, also through views."""
    bases = {database.base(table): table for table in tables().values()}
    found: dict[str, set[str]] = {}

    def note(action: int, table: str | None, column: str | None, _: str | None, inside: str | None) -> int:
        if action == sqlite3.SQLITE_READ and table in bases:
            named = found.setdefault(bases[table].name, set())
            # A view reads all columns of its base table when it is prepared: what counts is who reads the view.
            if column and inside != bases[table].name:
                named.update(name for name in bases[table].columns if database.stored(bases[table], name) == column)
        elif action == sqlite3.SQLITE_READ and table in tables() and column:
            found.setdefault(str(table), set()).add(column)
        return _judged(action, column)

    with closing(_connected(file)) as connection, explained(connection, sql, _LIMITS):
        connection.set_authorizer(note)
        connection.execute(f"EXPLAIN {sql}" if not sql.lstrip().lower().startswith("explain") else sql)
    return found


def _indexes_used(file: Path, sql: str) -> set[str]:
    """Indexes by which SQLite would look up rows for the question: an index takes as long as the rows themselves."""
    with closing(_connected(file)) as connection, explained(connection, sql, _LIMITS):
        connection.set_authorizer(lambda action, _, column, *__: _judged(action, column))
        is_plan = sql.lstrip().lower().startswith("explain")
        steps = [] if is_plan else [str(row[-1]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    return {found[1] for step in steps if (found := _USED.search(step))}


def _judged(action: int, name: str | None) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and str(name).lower() in _REFUSED_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _asked(file: Path, sql: str, limit: int, seconds: float) -> QueryResult:
    limits = replace(_LIMITS, seconds=seconds)
    with closing(_connected(file)) as connection, explained(connection, sql, limits):
        connection.set_authorizer(lambda action, _, column, *__: _judged(action, column))
        until = time.monotonic() + seconds
        connection.set_progress_handler(lambda: time.monotonic() > until, _INSTRUCTIONS)
        cursor = connection.execute(sql)
        if cursor.description is None:
            raise PerfdoctorError("that is no question", do="Begin with SELECT or WITH.")
        columns = tuple(column[0] for column in cursor.description)
        rows, is_cut = _fetched(cursor, limit)
    return QueryResult(columns, rows, is_cut)


def _fetched(cursor: sqlite3.Cursor, limit: int) -> tuple[list[tuple[Any, ...]], bool]:
    """The first `limit` rows, and whether there are more."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        if len(rows) == limit:
            return rows, True
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if size > _ANSWER_BYTES:
            raise PerfdoctorError(
                f"the texts of the answer are longer than {_ANSWER_BYTES >> 20} MiB",
                do="Ask for fewer rows or columns.",
            )
        rows.append(row)
    return rows, False


def _connected(file: Path) -> sqlite3.Connection:
    """The database, which cannot be written to through this connection."""
    connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _TEXT_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _SQL_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _PATTERN_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    # Views of a foreign file may call no function that is not safe.
    for pragma in ("query_only = 1", "trusted_schema = 0", "cell_size_check = 1", f"hard_heap_limit = {_HEAP_BYTES}"):
        connection.execute(f"PRAGMA {pragma}")
    functions.add(connection)
    return connection
