"""How are the tables of an Nsight Systems export read, quickly and read-only? Rows as columns, and names by id.

A table exists only where something was recorded, has no index, and its columns differ between versions: it is read
whole, with the columns that it has. Of a damaged file the tables that are still whole are read.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import quote

import numpy as np
from msgspec import Struct, field

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.columns import Ints, Mask, Text, numbered
from perfdoctor.patterns import regex
from perfdoctor.readers.nsys.columns import can_be_read, integer_columns
from perfdoctor.readers.nsys.range_names import RangeNames, decoded
from perfdoctor.system import forked

Columns = dict[str, Ints]

#: No number: NULL, or a column that the table lacks. (UNKNOWN is -1, which may be a time on a clock that starts at 0.)
NONE = int(np.iinfo(np.int64).min)

#: benchmarks/readers.py: ADBC saves 1.5 us a row; its imports take 0.05 s, or 0.1 s from disk. It pays off from 30,000
#: or from 70,000 rows in all. Most exports are smaller.
ROWS_WORTH_ADBC = 50_000
#: With the imports done, a query costs 0.5 ms more than one of sqlite3.
_ROWS_WORTH_A_QUERY = 1_000
#: Processes take parts of so many rows in turn, so that they are done at about the same time; a file has no more parts.
_ROWS_A_PART, _MOST_PARTS = 50_000, 64
_ROWS_A_FETCH = 20_000
_IDS_A_QUERY = 20_000

#: Errors of a damaged file. sqlite3's messages quote the damaged schema and are decoded strictly. Of some damaged rows
#: it says that there is no memory for them, and where that is true the table cannot be read either.
UNREADABLE = (sqlite3.Error, UnicodeDecodeError, MemoryError)

_MAGIC = b"SQLite format 3\x00"
_VERSIONED = regex(r"^(?P<table>.+)_V(?P<version>\d+)$")
HOLDS_EVENTS = regex(
    r"CUPTI_ACTIVITY_KIND_|TARGET_INFO_|NVTX_EVENTS|OSRT_API|META_DATA_EXPORT|EXPORT_META_DATA|ANALYSIS_DETAILS"
)
#: The GPU's counters. Most values of most counters are 0, and reading a row costs more than skipping it. The rows of
#: the first counter have the times of all samples.
GPU_METRICS, GPU_METRICS_COLUMNS = "GPU_METRICS", ("timestamp", "typeId", "metricId", "value")
_ONLY = {GPU_METRICS: '("value" <> 0 OR "metricId" = (SELECT min("metricId") FROM TARGET_INFO_GPU_METRICS))'}
NVTX, NVTX_COLUMNS = "NVTX_EVENTS", ("start", "end", "globalTid", "textId", "eventType")
_PUSH_POP, _START_END = 59, 60


def why(error: Exception | str) -> str:
    """What one of UNREADABLE says, or would."""
    return str(error) or "no memory for a row of it"


def damaged(path: Path, error: Exception | str) -> PerfdoctorError:
    return PerfdoctorError(
        f"`{path.name}` is damaged ({why(error)})",
        do="Copy the file again, or export the report again: nsys export --type sqlite.",
    )


class _Size(NamedTuple):
    """The number of a table's first row, and how many there are at most."""

    first: int
    rows: int


class _Read(NamedTuple):
    """Columns of some rows, and the names of ranges where they were asked for."""

    columns: Columns
    names: Text | None


class _Part(NamedTuple):
    """Some rows of a table that ADBC reads, in whatever process."""

    table: str
    path: Path
    sql: str
    rows: int
    has_text: bool

    def read(self) -> _Read | None:
        """The rows; None where ADBC cannot read them: sqlite3 then reads the table or raises the error."""
        names = RangeNames() if self.has_text else None
        try:
            most_rows = min(self.rows, self.path.stat().st_size)  # the greatest rowid may be any number
            columns = integer_columns(uri(self.path), self.sql, most_rows, names.add if names else None)
        except Exception:  # noqa: BLE001 three libraries may raise anything; sqlite3 works without them
            return None
        return _Read(columns, names.text() if names else None)


class Database(Struct, dict=True):
    """A SQLite file opened read-only: nothing is written into it or beside it (`immutable` prevents a -wal file).

    `name`: what the user knows it by: the report that it is an export of, or its own name.
    """

    path: Path
    connection: sqlite3.Connection
    is_damaged: bool = False
    is_fast: bool = True
    name: str = ""
    #: By table, what `read_ahead` has read of it and nobody has asked for yet.
    columns_ahead: dict[str, Columns] = field(default_factory=dict)
    names_ahead: dict[str, Text] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, name: str = "") -> Database:
        """Raises PerfdoctorError where the file cannot be opened, is no SQLite file, or is damaged at its root."""
        size, whole_pages, is_short = _measured(path)
        if not whole_pages:
            raise damaged(path, "it holds no whole page")
        try:
            if size == whole_pages:
                connection, is_refused = _connected(path)
            else:
                # SQLite silently reads the missing part of a page as zeros, so it gets a copy of the whole pages. The
                # copy is unlinked at once, and freed when the connection is closed.
                with tempfile.NamedTemporaryFile() as copy, path.open("rb") as stream:
                    _copy(stream, copy, whole_pages)
                    connection, is_refused = _connected(Path(copy.name))
        except (*UNREADABLE, OSError) as error:
            raise damaged(path, error) from error
        return cls(path, connection, is_damaged=is_short or is_refused, name=name or path.name)

    def close(self) -> None:
        """A connection and its cache of statements hold each other: without this the file stays open."""
        self.connection.close()

    @cached_property
    def tables(self) -> Mapping[str, str]:
        """Plain table names to those in the file: of `X`, `X_V2` and `X_V3` the highest version is X."""
        best: dict[str, tuple[int, str]] = {}
        try:
            names = self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        except UNREADABLE as error:
            raise damaged(self.path, error) from error
        for (name,) in names:
            versioned = _VERSIONED.match(str(name))
            plain, version = (versioned["table"], int(versioned["version"])) if versioned else (str(name), 0)
            if plain not in best or version > best[plain][0]:
                best[plain] = (version, str(name))
        return {plain: quoted(name) for plain, (_, name) in best.items()}

    @property
    def is_export(self) -> bool:
        return "StringIds" in self.tables and any(HOLDS_EVENTS.match(table) for table in self.tables)

    def columns_of(self, table: str) -> frozenset[str]:
        if table not in self.tables:
            return frozenset()
        return frozenset(row[1] for row in self.connection.execute(f"PRAGMA table_info({self.tables[table]})"))

    def has_rows(self, table: str) -> bool:
        """Is the table there, and not empty? With `--lazy=false` tables of what was not recorded exist too."""
        return bool(self.rows(table, "1", "1 LIMIT 1"))

    def rows(self, table: str, fields: str, where: str = "1") -> list[tuple[object, ...]]:
        """Some rows of a small table; none where it does not exist or is damaged."""
        if table not in self.tables:
            return []
        try:
            return self.connection.execute(f"SELECT {fields} FROM {self.tables[table]} WHERE {where}").fetchall()
        except UNREADABLE:
            return []

    def read_ahead(self, wanted: Mapping[str, Sequence[str]], texts: Mapping[str, str]) -> None:
        """Read large tables now, by several processes: the `wanted` columns, and for `ranges` the columns of `texts`.

        Of GPU_METRICS only what `_ONLY` says. What cannot be read this way is read when it is asked for.
        """
        tables = {table: present for table in wanted if (present := self._present(table, wanted[table]))}
        sizes = {table: self._size(table) for table in tables}
        if self.is_damaged or sum(size.rows for size in sizes.values()) < ROWS_WORTH_ADBC or not can_be_read():
            return
        parts = [
            part
            for table, present in tables.items()
            if sizes[table].rows >= min(_ROWS_WORTH_A_QUERY, ROWS_WORTH_ADBC)
            for part in self._parts(table, present, sizes[table], texts.get(table))
        ]
        read = forked.several([part.read for part in parts])
        for table in dict.fromkeys(part.table for part in parts):
            own = [found for part, found in zip(parts, read, strict=True) if part.table == table]
            self._keep(table, own)

    def _keep(self, table: str, parts: Sequence[_Read | None]) -> None:
        """Keep all parts of a table until somebody asks for them, unless one of them could not be read."""
        read = [part for part in parts if part is not None]
        if len(read) < len(parts):
            self.is_fast = False
            return
        self.columns_ahead[table] = {name: _joined([part.columns[name] for part in read]) for name in read[0].columns}
        if names := [part.names for part in read if part.names is not None]:
            self.names_ahead[table] = names[0] if len(names) == 1 else Text.join(names)

    def integers(self, table: str, wanted: Sequence[str], where: str = "") -> Columns:
        """The wanted columns, NONE where there is no number. Raises one of UNREADABLE where the table is damaged.

        `where`: a condition in SQL; such rows are read now, and not ahead.
        """
        present = self._present(table, wanted)
        if not present:
            return _no_rows(wanted)
        if not where and (ahead := self.columns_ahead.pop(table, {})).keys() >= set(present):
            return _all_of(wanted, ahead)
        condition = where or _ONLY.get(table, "")
        sql = _query(self.tables[table], present) + (f" WHERE {condition}" if condition else "")
        cursor, parts = self.connection.execute(sql), []
        while rows := cursor.fetchmany(_ROWS_A_FETCH):
            flat = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(present))
            parts.append(flat.reshape(-1, len(present)).T)
        columns = np.concatenate(parts, axis=1) if parts else np.empty((len(present), 0), np.int64)
        return _all_of(wanted, dict(zip(present, columns, strict=True)))

    def ranges(self, table: str, column: str) -> Text:
        """The names of NVTX ranges that are in a column of text, in the order of `integers`; "" for NULL."""
        if (ahead := self.names_ahead.pop(table, None)) is not None:
            return ahead
        names, decode = RangeNames(), self.connection.text_factory
        self.connection.text_factory = bytes
        try:
            cursor = self.connection.execute(_query(self.tables[table], (), column))
            while rows := cursor.fetchmany(_ROWS_A_FETCH):
                texts = [text for (text,) in rows]
                names.add(b"".join(texts), np.cumsum([len(text) for text in texts]))
        finally:
            self.connection.text_factory = decode
        return names.text()

    def _present(self, table: str, wanted: Sequence[str]) -> list[str]:
        known = self.columns_of(table)
        return [name for name in wanted if name in known]

    def _parts(self, table: str, columns: Sequence[str], size: _Size, text: str | None) -> Iterator[_Part]:
        """Pieces of about equal size, of which the first come first in the file; one alone where we are alone."""
        text = text if text in self.columns_of(table) else None
        sql = _query(self.tables[table], columns, text)
        rows = max(_ROWS_A_PART, size.rows // _MOST_PARTS) if forked.extra_processes() else max(1, size.rows)
        for first in range(size.first, size.first + size.rows, rows):
            only = f" AND {_ONLY[table]}" if table in _ONLY else ""
            where = f" WHERE rowid BETWEEN {first} AND {first + rows - 1}{only}"
            yield _Part(table, self.path, sql + where, min(rows, size.rows), text is not None)

    def names(self, ids: Sequence[int]) -> dict[int, str]:
        """These strings of StringIds and no others, which may contain the recorded program's environment."""
        known: dict[int, str] = {}
        for begin in range(0, len(ids), _IDS_A_QUERY):
            listed = ",".join(map(str, ids[begin : begin + _IDS_A_QUERY]))
            sql = f"SELECT id, value FROM {self.tables['StringIds']} WHERE id IN ({listed})"
            known.update((number, str(value)) for number, value in self.connection.execute(sql))
        return known

    def _size(self, table: str) -> _Size:
        """The number of the first row, and of no fewer rows than there are, found without reading the table."""
        ends = (f"(SELECT {end}(rowid) FROM {self.tables[table]})" for end in ("min", "max"))
        try:
            low, high = self.connection.execute(f"SELECT {', '.join(ends)}").fetchone()
        except UNREADABLE:
            return _Size(0, 0)
        return _Size(0, 0) if low is None else _Size(int(low), int(high) - int(low) + 1)


class ExportTables(Struct):
    """The tables of one export while they are read, with what had to be left out."""

    database: Database
    notes: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)

    def rows(self, table: str, columns: Sequence[str], *, is_device: bool = False) -> Columns:
        """Rows that have a start and do not end before it; none where the table is absent or damaged."""
        try:
            rows = self.database.integers(table, columns)
        except UNREADABLE as error:
            self._cannot_read(table, error)
            return _no_rows(columns)
        good = (rows["start"] != NONE) & (rows["end"] >= rows["start"])
        rows = self._kept(rows, good, table, "without an end, or with one before the start: dropped.")
        if is_device:  # CUPTI took no time stamps for rows whose start and end are both 0
            rows = self._kept(rows, (rows["start"] != 0) | (rows["end"] != 0), table, "without a time: dropped.")
        return rows

    def nvtx(self) -> tuple[Columns, Text]:
        """Push/pop and start/end ranges, and their names: in the row itself or, by id, in StringIds."""
        table, wanted = NVTX, NVTX_COLUMNS
        try:
            columns = self.database.columns_of(table)
            rows = self.database.integers(table, wanted)
            own = self.database.ranges(table, "text") if "text" in columns else Text.constant("", rows["start"].size)
            # An export without event types contains ranges only.
            has_types = "eventType" in columns
            is_range = (
                np.isin(rows["eventType"], (_PUSH_POP, _START_END)) if has_types else np.ones(rows["start"].size, bool)
            )
            is_own = own.where(bool)
        except UNREADABLE as error:
            self._cannot_read(table, error)
            return _no_rows(wanted), Text.of(())
        opened = is_range & (rows["end"] == NONE)
        if opened.any():
            self._note(int(opened.sum()), "NVTX range", "still open when the recording ended: dropped.", was=True)
        keep = is_range & ~opened
        keep &= (rows["start"] != NONE) & (rows["end"] >= rows["start"])
        if backwards := int(is_range.sum() - opened.sum() - keep.sum()):
            self._note(backwards, "NVTX range", "without a start, or ended before it: dropped.", was=True)
        by_id = self.text(np.where(is_own, NONE, rows["textId"]))
        codes = np.where(is_own, own.codes, by_id.codes + len(own.values)).astype(np.int32)
        return {name: values[keep] for name, values in rows.items()}, Text(codes[keep], [*own.values, *by_id.values])

    def text(self, ids: Ints) -> Text:
        """Names by id, "" where there is none; equal names share a code."""
        unique, codes = numbered(ids)
        known = self.database.names(unique.tolist())
        return Text(codes.astype(np.int32), [known.get(number, "") for number in unique.tolist()]).mapped(str)

    def _kept(self, rows: Columns, good: Mask, table: str, why: str) -> Columns:
        """The good rows; a note says why the others of the table are dropped."""
        if good.all():
            return rows
        self._note(int((~good).sum()), "row", f"of {table} {why}")
        return {name: values[good] for name, values in rows.items()}

    def _note(self, count: int, what: str, why: str, *, was: bool = False) -> None:
        verb = ("was " if count == 1 else "were ") if was else ""
        self.notes.append(f"{count:,} {what}{'s' * (count != 1)} {verb}{why}")

    def _cannot_read(self, table: str, error: Exception | str) -> None:
        self.unreadable[table] = str(error)
        self.notes.append(f"`{self.database.name}` is damaged: {table} cannot be read and is left out ({why(error)}).")


def _query(table: str, columns: Sequence[str], text: str | None = None) -> str:
    """These columns as integers, and behind them the names of ranges from a column of text, a NUL behind each."""
    # With the casts numpy and ADBC see one type in each column. Without an index every query returns rows in the order
    # of the file.
    fields = [f'CAST(coalesce("{name}", {NONE}) AS INTEGER) AS "{name}"' for name in columns]
    names = [] if text is None else [f"CAST(coalesce(\"{text}\", '') AS TEXT) || char(0)"]
    return f"SELECT {', '.join((*fields, *names))} FROM {table} NOT INDEXED"


def _all_of(wanted: Sequence[str], found: Columns) -> Columns:
    """The wanted columns: those that were found, and NONE in those that the table lacks."""
    rows = next(iter(found.values())).size
    return {name: found.get(name, np.full(rows, NONE, dtype=np.int64)) for name in wanted}


def _joined(parts: Sequence[Ints]) -> Ints:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _no_rows(columns: Sequence[str]) -> Columns:
    return {name: np.empty(0, np.int64) for name in columns}


def uri(path: Path) -> str:
    return f"file:{quote(os.fsencode(path.resolve()))}?mode=ro&immutable=1"


def quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _connected(path: Path) -> tuple[sqlite3.Connection, bool]:
    """A read-only connection, and whether SQLite would refuse the file as damaged."""
    connection = sqlite3.connect(uri(path), uri=True)
    connection.text_factory = decoded
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except UNREADABLE:
        # SQLite refuses a file shorter than its header says, unless its schema may be repaired: a setting of this
        # connection, which cannot write. Tables that lost a page still raise when they are read.
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return connection, True
    return connection, False


def _measured(path: Path) -> tuple[int, int, bool]:
    """Bytes of the file, bytes of its whole pages, and whether it is shorter than its header says.

    Raises PerfdoctorError where it cannot be opened or is no SQLite file.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(100)
            size = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise PerfdoctorError(f"`{path.name}` cannot be opened: {error.strerror}", do="Check the path.") from error
    if not head:
        raise PerfdoctorError(f"`{path.name}` is empty", do="Export the report again: nsys export --type sqlite.")
    if not head.startswith(_MAGIC):
        raise PerfdoctorError(
            f"`{path.name}` is no SQLite file", do="Pass a .nsys-rep, or what `nsys export --type sqlite` made of it."
        )
    # https://www.sqlite.org/fileformat.html#the_database_header: 1 stands for 65,536.
    page = int.from_bytes(head[16:18], "big")
    page = 65_536 if page == 1 else max(page, 512)
    pages = int.from_bytes(head[28:32], "big") if head[24:28] == head[92:96] else 0
    whole = size - size % page
    return size, whole, whole < size or size < pages * page


def _copy(source: IO[bytes], target: IO[bytes], count: int) -> None:
    while count and (block := source.read(min(count, 1 << 20))):
        target.write(block)
        count -= len(block)
    target.flush()
