"""How is an SQLite file copied, an export of Nsight Systems above all, without what is private?

The copy is a new file that never held anything else: nothing of what was removed is left in free pages. Numbers are
copied; every text of every table gets its stand-ins, also of tables that nobody knows; bytes in which text may be are
left out. nsys keeps the environment in three places, and names every process of the machine.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from perfdoctor.patterns import regex
from perfdoctor.readers.nsys import nccl_payloads
from perfdoctor.readers.nsys.python_stacks import names_in
from perfdoctor.readers.nsys.tables import UNREADABLE, Database, damaged, quoted, uri
from perfdoctor.scrubbing.texts import ENVIRONMENT, Texts, variables

STRINGS = "StringIds"
OUTPUT, PROGRAMS, BYTES = "texts of the program's output", "names of other programs", "binary values with text"
SETTINGS = "settings of the recorder"
#: A column of numbers that are those of strings, as nsys's schema says it, and as old ones are called.
_REFERS = regex(r"^\s*\"?(\w+)\"?\s[^\n]*REFERENCES\s+StringIds", re.MULTILINE)
_IS_NAME = regex(r"(?:name|text|symbol|module|label|string)(?:Id)?$", re.IGNORECASE)
#: What the program printed, and files of its, which nsys may keep.
_CONTENT = regex(r"content(?:Id)?$")
#: Rows of `name` and `value` are settings: those stay that are numbers, or say who wrote the file.
_SETTING = regex(r"true|false|-?\d*(?:\.\d+)?", re.IGNORECASE)
_WRITER = regex(r"EXPORT_(?:PRODUCT|SCHEMA|PLATFORM|ARCH).*")
_OF_ONE_GPU = regex(r"uuid|luid|serial.*|.*bus_?(?:location|id)", re.IGNORECASE)
_OWNER = ("globalTid", "globalPid")
#: Tables whose rows show that a process was recorded.
_RECORDED = regex(r"NVTX_EVENTS|OSRT_API|CUPTI_ACTIVITY_KIND_.*|CUDA_GPU_MEMORY_USAGE_EVENTS|PROFILER_OVERHEAD")
_TEXT_IN_BYTES = regex(rb"[ -~]{6}|(?:[ -~]\0){5}")
_TYPE = regex(r"[A-Za-z ]{0,32}")


class Table:
    """A table to be copied: its columns with their types, and which of them hold texts or bytes."""

    def __init__(self, database: sqlite3.Connection, name: str, schema: str) -> None:
        self.name, self._schema = name, schema
        rows = database.execute(f"PRAGMA old.table_info({quoted(name)})").fetchall()
        self.columns = {str(row[1]): (str(row[2]), bool(row[5])) for row in rows}
        kinds = (f"max(typeof({quoted(each)}) IN ('text', 'blob'))" for each in self.columns)
        found = database.execute(f"SELECT {', '.join(kinds)} FROM {self.source}").fetchone() if rows else ()
        self.texts = {name for name, has_text in zip(self.columns, found, strict=True) if has_text}

    @property
    def source(self) -> str:
        return f"old.{quoted(self.name)}"

    @property
    def owner(self) -> str | None:
        return next((each for each in _OWNER if each in self.columns), None)

    @property
    def is_settings(self) -> bool:
        return {"name", "value"} <= self.columns.keys()

    @property
    def is_of_processes(self) -> bool:
        """Does it name processes or threads, and no moment?"""
        return self.owner is not None and not {"start", "timestamp", "id"} & self.columns.keys()

    def refers(self) -> list[str]:
        """The columns that hold numbers of strings."""
        declared = set(_REFERS.findall(self._schema))
        return [each for each in self.columns if each in declared or _IS_NAME.search(each)]

    def create(self, database: sqlite3.Connection) -> None:
        """Make the table without what its schema says besides: conditions, comments, triggers."""
        keys = [name for name, (_, is_key) in self.columns.items() if is_key]
        made = (
            f"{quoted(name)} {kind if _TYPE.fullmatch(kind) else ''}{' PRIMARY KEY' if keys == [name] else ''}"
            for name, (kind, _) in self.columns.items()
        )
        database.execute(f"CREATE TABLE main.{quoted(self.name)} ({', '.join(made)})")


def learn(path: Path, texts: Texts) -> None:
    """Look at all texts of all tables that can be read. Raises PerfdoctorError where the file cannot be."""
    with closing(_connected(path, ":memory:")) as database:
        for table in _tables(path, database, []):
            with suppress(*UNREADABLE):  # it is left out of the copy
                _learn(database, table, texts)


def _learn(database: sqlite3.Connection, table: Table, texts: Texts) -> None:
    for name in (table.name, *table.columns):  # these are copied as they are
        texts.learn(name)
    columns = sorted(table.texts)
    for row in database.execute(f"SELECT {', '.join(map(quoted, columns))} FROM {table.source}") if columns else ():
        named = dict(zip(columns, row, strict=True))
        setting = str(named.get("name", "")) if table.is_settings else ""
        for column, value in named.items():
            if isinstance(value, str):
                texts.learn(value, setting if column == "value" else column)
                if setting.endswith("ENVIRONMENT_VARIABLE"):
                    texts.learn(f"{value}\0")


def copy(path: Path, target: Path, texts: Texts) -> list[str]:
    """Write the copy; the names of tables that could not be read. Raises PerfdoctorError and OSError."""
    lost: list[str] = []
    with closing(_connected(path, f"file:{quote(os.fsencode(target.absolute()))}")) as database:
        tables = list(_tables(path, database, lost))
        recorded = _recorded(database, tables)
        used = _used_strings(path, database, tables, recorded)
        with closing(Database.open(path)) as whole:
            schemas = nccl_payloads.schemas_of(whole)
        for table in tables:
            table.create(database)
            try:
                _copy(database, table, texts, recorded, used, schemas)
            except UNREADABLE:
                lost.append(table.name)
    return lost


def _connected(path: Path, target: str) -> sqlite3.Connection:
    with closing(Database.open(path)):  # which says what is wrong with it
        database = sqlite3.connect(target, uri=True, isolation_level=None)
    database.text_factory = lambda raw: str(raw, "utf-8", "replace")
    try:
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("ATTACH ? AS old", (uri(path),))
        database.execute("SELECT count(*) FROM old.sqlite_master").fetchone()
    except UNREADABLE as error:
        database.close()
        raise damaged(path, error) from error
    return database


def _tables(path: Path, database: sqlite3.Connection, lost: list[str]) -> Iterator[Table]:
    wanted = "type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    try:
        found = database.execute(f"SELECT name, sql FROM old.sqlite_master WHERE {wanted}").fetchall()
    except UNREADABLE as error:
        raise damaged(path, error) from error
    for name, schema in found:
        is_virtual = re.match(r"\s*CREATE\s+VIRTUAL", str(schema), re.IGNORECASE)  # code would read it
        table = None if is_virtual else _table(database, str(name), str(schema))
        if table is None:
            lost.append(str(name))
        else:
            yield table


def _table(database: sqlite3.Connection, name: str, schema: str) -> Table | None:
    try:
        return Table(database, name, schema)
    except UNREADABLE:
        return None


def _recorded(database: sqlite3.Connection, tables: Sequence[Table]) -> set[int]:
    """The processes of which anything was recorded."""
    return {
        row[0]
        for table in tables
        if table.owner and _RECORDED.fullmatch(table.name)
        for row in database.execute(f'SELECT DISTINCT ("{table.owner}" >> 24) & 16777215 FROM {table.source}')
        if row[0] is not None
    }


def _used_strings(path: Path, database: sqlite3.Connection, tables: Sequence[Table], recorded: set[int]) -> set[int]:
    """The numbers of the strings that rows of the copy name, also in stacks of Python."""
    used: set[int] = set()
    for table in tables:
        if table.name == STRINGS or table.is_settings:
            continue
        where = _of_recorded(table, recorded)
        for column in table.refers():
            if not _CONTENT.search(column):
                found = database.execute(f"SELECT DISTINCT {quoted(column)} FROM {table.source} WHERE {where}")
                used.update(number for (number,) in found if isinstance(number, int))
    with closing(Database.open(path)) as whole:
        return used | names_in(whole)


def _of_recorded(table: Table, recorded: set[int]) -> str:
    """The condition of rows that are copied: of those that name processes, the recorded ones'."""
    if not (table.is_of_processes and recorded):
        return "1"
    return f'"{table.owner}" IS NULL OR ("{table.owner}" >> 24) & 16777215 IN ({", ".join(map(str, sorted(recorded)))})'


def _copy(
    database: sqlite3.Connection, table: Table, texts: Texts, recorded: set[int], used: set[int],
    schemas: nccl_payloads.Schemas,
) -> None:  # fmt: skip
    """Fill the table of the copy. Texts reach functions as bytes: they need not be UTF-8."""

    def cell(column: str, kind: str, raw: bytes, number: object) -> str | bytes | None:
        if kind == "blob":
            return without_text(raw, texts, nccl_payloads.without_numbers(raw, schemas))
        value = str(raw, "utf-8", "replace")
        if _CONTENT.search(column):
            texts.stand_ins.removed(OUTPUT, value)
            return ""
        if table.name == STRINGS and number not in used and not variables(value):
            if value:
                texts.stand_ins.removed(PROGRAMS, value)
            return ""
        if _OF_ONE_GPU.fullmatch(column):
            return f"gpu-{texts.stand_ins.number('gpu', value)}"
        return texts.text(value, column)

    database.create_function("cleaned", 4, cell)
    database.create_function("is_kept", 2, lambda name, value: _is_kept(_decoded(name), _decoded(value), texts))
    number = '"id"' if table.name == STRINGS and "id" in table.columns else "NULL"
    where = f"is_kept({_raw('name')}, {_raw('value')})" if table.is_settings else _of_recorded(table, recorded)
    chosen = (_cleaned(each, number) if each in table.texts else quoted(each) for each in table.columns)
    into = f"INSERT INTO main.{quoted(table.name)} SELECT {', '.join(chosen)} FROM {table.source} WHERE {where}"
    database.execute("BEGIN")
    try:
        database.execute(into)
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _cleaned(column: str, number: str) -> str:
    """What stands for a column in which a text or bytes may be."""
    name, value = "'" + column.replace("'", "''") + "'", quoted(column)
    made = f"cleaned({name}, typeof({value}), {_raw(column)}, {number})"
    return f"CASE WHEN typeof({value}) IN ('text', 'blob') THEN {made} ELSE {value} END"


def _raw(column: str) -> str:
    return f"CAST({quoted(column)} AS BLOB)"


def _decoded(raw: bytes | None) -> str:
    return str(raw or b"", "utf-8", "replace")


def _is_kept(name: str, text: str, texts: Texts) -> bool:
    """Does a setting tell nothing? An environment, a command, a folder and every other text does not stay."""
    if _WRITER.fullmatch(name) or (_SETTING.fullmatch(text) and texts.text(text) == text):
        return True
    found = variables(text) or ([(text.partition("=")[0], "")] if "ENVIRONMENT" in name else [])
    for variable, _ in found:
        texts.stand_ins.removed(ENVIRONMENT, variable)
    if not found:
        texts.stand_ins.removed(SETTINGS, name)
    return False


def without_text(value: bytes, texts: Texts, searched: bytes | None = None) -> bytes | None:
    """The bytes; None where text may be in them, or in those of them that are `searched`."""
    if _TEXT_IN_BYTES.search(value if searched is None else searched):
        texts.stand_ins.removed(BYTES, value.hex())
        return None
    return value
