"""Why was a question not answered, and what could be asked instead?"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.export.tables import functions
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.nearest import near
from perfdoctor.vocabulary.spellings import column_hint, table_hint

_NO_NAME = regex(r"no such (column|table|function): (\S+)")
_WORD = regex(r"\w+")


class Limits(Struct, frozen=True):
    """What a question may take: `seconds` of time, of memory, of one text, its own text and a pattern in bytes."""

    seconds: float
    heap_bytes: int
    text_bytes: int
    sql_bytes: int
    pattern_bytes: int


@contextmanager
def explained(connection: sqlite3.Connection, sql: str, limits: Limits) -> Iterator[None]:
    """Turn errors of SQLite on the question `sql` into PerfdoctorErrors, which name the limit or the nearest name."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
        text = str(error).lower()
        raise (
            _over_a_limit(text, limits)
            or functions.refused(text)
            or _unknown_name(connection, sql, str(error))
            or _not_a_question(error)
        ) from error
    except MemoryError as error:
        raise PerfdoctorError(
            f"the question needs more than {limits.heap_bytes >> 30} GiB of memory", do="Ask for fewer rows or columns."
        ) from error


def _over_a_limit(text: str, limits: Limits) -> PerfdoctorError | None:
    if "interrupted" in text:
        return PerfdoctorError(
            f"the question takes longer than {limits.seconds:g} s",
            do="Ask for less, or give it more time: --seconds.",
        )
    if "query string is too large" in text:
        return PerfdoctorError(f"the question is longer than {limits.sql_bytes:,} bytes", do="Ask a shorter one.")
    if "like or glob pattern too complex" in text:
        return PerfdoctorError(
            f"a pattern of LIKE or GLOB is longer than {limits.pattern_bytes:,} bytes", do="Use a shorter one."
        )
    if "too big" in text or "too large" in text:
        return PerfdoctorError(
            f"a text of the answer is longer than {limits.text_bytes >> 20} MiB", do="Ask for less in one text."
        )
    return None


def _not_a_question(error: Exception) -> PerfdoctorError:
    text = str(error).lower()
    if any(sign in text for sign in ("not authorized", "prohibited", "readonly", "one statement")):
        return PerfdoctorError(
            f"the database is only read: {error}", do="Ask one question that begins with SELECT or WITH."
        )
    do = "Write TABLE.COLUMN." if "ambiguous column" in text else "See docs/tables.md for an example."
    return PerfdoctorError(f"the question cannot be answered: {error}", do=do)


# --- names that there are not ----------------------------------------------------------------------------------------


def _unknown_name(connection: sqlite3.Connection, sql: str, text: str) -> PerfdoctorError | None:
    """The error with the names that come nearest to the one that is not known."""
    if not (found := _NO_NAME.search(text)):
        return None
    kind, name = found[1], found[2].rpartition(".")[2].strip("\"'`[]")
    known = _columns_by_table(connection)
    if kind == "table":
        do = table_hint(name, known)
    elif kind == "function":
        ours = f"Beside SQLite's own functions there are {' and '.join(functions.FUNCTIONS.values())}."
        do = near(name, functions.FUNCTIONS, ours)
    else:
        do = _columns(name, sql, known)
    return PerfdoctorError(text, do=do)


def _columns(name: str, sql: str, known: Mapping[str, Sequence[str]]) -> str:
    """What a column of this name may be in the tables of the question, and where else it is."""
    words = {word.lower() for word in _WORD.findall(sql)}
    return column_hint(name, {table: columns for table, columns in known.items() if table in words}, known)


def _columns_by_table(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of each documented table and view that the database has."""
    connection.set_authorizer(None)
    connection.set_progress_handler(None, 0)
    found: dict[str, list[str]] = {}
    names = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY rowid")
    for name in [row[0] for row in names]:
        if re.fullmatch("[a-z][a-z_]*", name) and name != "texts" and not name.startswith("sqlite_"):
            found[name] = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
    return found
