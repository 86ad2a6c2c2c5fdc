"""Which runs are stored, and what do people add to them?"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perfdoctor.errors import UsageError
from perfdoctor.history import promises, schema, store
from perfdoctor.history.facts import Facts, Row, checked, new_id, now, plain_text
from perfdoctor.patterns import regex

if TYPE_CHECKING:
    from sqlite_utils.db import Database

_PREFIX = regex(r"[0-9a-f]{4,12}")
_LAST = regex(r"last(?:~(\d{1,6}))?")
_NAME = regex(r"[\w][\w./+-]{0,99}")
_AGE = regex(r"(\d{1,6})(d?)")
#: A note is a remark, and no document.
_MOST_NOTE = 2000
#: Without these a row says nothing.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "parts": ("run_id", "part", "ns"), "findings": ("run_id", "position", "rule"), "tags": ("run_id", "tag"),
    "notes": ("run_id", "noted_at", "note"), "pins": ("name", "run_id"),
}  # fmt: skip
_NEWEST_FIRST = "recorded_at desc, stored_at desc, id desc"


class StoredRun(Struct, frozen=True):
    """One run with all that belongs to it. `facts` has the columns of `runs`; `parts` is in ns over all windows."""

    facts: Row
    parts: Mapping[str, int]
    findings: tuple[Row, ...]
    tags: tuple[str, ...]
    notes: tuple[Row, ...]
    pins: tuple[str, ...]

    @property
    def step_times_ns(self) -> tuple[int, ...]:
        return numbers_in(self.facts.get("step_times_ns"))

    @property
    def timed_steps_ns(self) -> tuple[int, ...]:
        return numbers_in(self.facts.get("timed_steps_ns"))


def numbers_in(text: object) -> tuple[int, ...]:
    """The integers of a JSON list; empty for anything else, as the file may come from elsewhere."""
    try:
        found = json.loads(text) if isinstance(text, str) else ()
    except ValueError:
        return ()
    if not isinstance(found, list):
        return ()
    return tuple(int(each) for each in found if isinstance(each, int | float) and math.isfinite(each))


def save(db: Database, facts: Facts) -> str:
    """Store the run, all of it or nothing: when this returns, it is on the disk. Returns its id."""

    def insert(db: Database) -> None:
        db.table("runs").insert(facts.run)
        db.table("parts").insert_all(facts.parts)
        db.table("findings").insert_all(facts.findings)

    try:
        store.write(db, insert)
    except sqlite3.IntegrityError:  # another run has this id
        facts = renamed(facts, new_id())
        store.write(db, insert)
    return facts.id


def renamed(facts: Facts, name: str) -> Facts:
    """The facts of a run by another id."""
    parts, findings = (tuple({**row, "run_id": name} for row in rows) for rows in (facts.parts, facts.findings))
    return Facts({**facts.run, "id": name}, parts, findings)


# --- reading ---------------------------------------------------------------------------------------------------------


def listed(db: Database, *, limit: int | None = None, tag: str | None = None) -> list[Row]:
    """The facts of each run, newest first, with its `tags`, its `pins` and its `first_finding`."""
    where = "where exists (select 1 from tags where run_id = runs.id and tag = :tag)" if tag is not None else ""
    rows = db.query(
        f"""select runs.*,
          (select json_group_array(tag) from tags where run_id = runs.id and typeof(tag) = 'text') as tags,
          (select json_group_array(name) from pins where run_id = runs.id and typeof(name) = 'text') as pins,
          (select rule from findings where run_id = runs.id order by position limit 1) as first_finding
        from runs {where} order by {_NEWEST_FIRST} limit :limit""",  # noqa: S608 constants
        {"tag": tag, "limit": -1 if limit is None else limit},
    )
    checked_rows = (checked(row, {**schema.RUN_COLUMNS, "first_finding": str}) for row in rows)
    return [
        {**row, "tags": sorted(json.loads(row["tags"])), "pins": sorted(json.loads(row["pins"]))}
        for row in checked_rows
    ]


def count(db: Database) -> int:
    return int(db.conn.execute("select count(*) from runs").fetchone()[0])


def stored(db: Database, name: str) -> StoredRun:
    """The run with the id `name`."""

    def of(table: str, order: str) -> list[Row]:
        rows = db.query(f"select * from {table} where run_id = ? order by {order}", [name])  # noqa: S608 constants
        return [row for each in rows if _is_whole(row := checked(each, schema.OF_RUNS[table]), table)]

    facts = next(db.query("select * from runs where id = ?", [name]), None)
    if facts is None:  # as every id comes from a list of this history, the file's index contradicts its table
        raise sqlite3.DatabaseError("it is malformed")
    return StoredRun(
        facts=checked(facts, schema.RUN_COLUMNS),
        parts={row["part"]: row["ns"] for row in of("parts", "part")},
        findings=tuple(of("findings", "position")),
        tags=tuple(row["tag"] for row in of("tags", "tag")),
        notes=tuple(of("notes", "noted_at, note")),
        pins=tuple(row["name"] for row in of("pins", "name")),
    )


def pinned(db: Database, name: str) -> tuple[StoredRun, ...]:
    """The runs of a named baseline, oldest first; empty where there is no such name."""
    rows = db.query(
        "select runs.id from pins join runs on runs.id = run_id where name = ? order by recorded_at, runs.id", [name]
    )
    return tuple(stored(db, row["id"]) for row in list(rows))


def pin_names(db: Database) -> list[str]:
    rows = db.query("select distinct name from pins where typeof(name) = 'text' order by name")
    return [plain_text(row["name"], 100) for row in rows]


def resolved(db: Database, text: str) -> str:
    """The id of a run: by its first digits, `last`, `last~2` (two before it), the name of a pin or a run folder."""
    if last := _LAST.fullmatch(text):
        rows = list(db.query(f"select id from runs order by {_NEWEST_FIRST} limit 1 offset ?", [int(last[1] or 0)]))  # noqa: S608
        if not rows:
            raise UsageError(f"the history has only {count(db)} runs", do="perfdoctor run stores one.")
        return str(rows[0]["id"])
    if _PREFIX.fullmatch(text):
        found = [row["id"] for row in db.query("select id from runs where id like ? limit 2", [f"{text}%"])]
        if len(found) > 1:
            raise UsageError(f"several runs begin with {text}", do="Give more digits.")
        if found:
            return str(found[0])
    by_pin = "select run_id as id from pins join runs on runs.id = run_id where name = ?"
    by_folder = "select id from runs where folder = ?"
    for query, wanted in ((by_pin, text), (by_folder, text.rstrip("/"))):
        rows = list(db.query(f"{query} order by {_NEWEST_FIRST} limit 1", [plain_text(wanted)]))
        if rows:
            return str(rows[0]["id"])
    raise UsageError(
        f"the history has no run {plain_text(text, 100)!r}",
        do="perfdoctor history lists them: give the first digits of an id, last, last~1, a pin or a run folder.",
    )


# --- what people add -------------------------------------------------------------------------------------------------


def named(text: str, what: str) -> str:
    """A name that needs no quotes in a shell and cannot be taken for a run. Raises UsageError."""
    if not _NAME.fullmatch(text) or _LAST.fullmatch(text) or _PREFIX.fullmatch(text):
        raise UsageError(
            f"{plain_text(text, 100)!r} is no name of a {what}",
            do="Use letters, digits, and . / + - _ between them; not last, and nothing that looks like a run's id.",
        )
    return text


def pin(db: Database, name: str, ids: Sequence[str], *, add: bool = False) -> None:
    """Pin these runs by this name, instead of those that have it, or with `add` beside them."""

    def work(db: Database) -> None:
        if not add:
            db.conn.execute("delete from pins where name = ?", [name])
        rows = [{"name": name, "run_id": each, "pinned_at": now()} for each in ids]
        db.table("pins").insert_all(rows, replace=True)

    store.write(db, work)


def unpin(db: Database, name: str) -> None:
    """Remove this pin. Raises UsageError if there is none of this name."""

    def work(db: Database) -> int:
        return db.conn.execute("delete from pins where name = ?", [name]).rowcount

    if not store.write(db, work):
        raise UsageError(f"nothing is pinned as {name!r}", do=f"Pinned: {', '.join(pin_names(db)) or 'nothing'}.")


def tag(db: Database, text: str, name: str) -> None:
    store.write(db, lambda db: db.table("tags").insert({"run_id": name, "tag": text}, replace=True))


def untag(db: Database, text: str, name: str) -> bool:
    """Remove the tag `text` from the run `name`. Was it there?"""
    query = "delete from tags where run_id = ? and tag = ?"
    return bool(store.write(db, lambda db: db.conn.execute(query, [name, text]).rowcount))


def note(db: Database, text: str, name: str) -> None:
    row = {"run_id": name, "noted_at": now(), "note": plain_text(text, _MOST_NOTE)}
    store.write(db, lambda db: db.table("notes").insert(row, replace=True))


# --- fewer, and more -------------------------------------------------------------------------------------------------


def to_prune(db: Database, keep: str) -> list[str]:
    """The ids of older runs than are kept: `50` keeps the newest fifty, `90d` ninety days. Pinned ones stay."""
    age = _AGE.fullmatch(keep)
    if not age:
        raise UsageError(
            f"--keep {plain_text(keep, 100)}: that is neither a number nor days", do="Use --keep 50 or 90d."
        )
    free = "select id from runs where id not in (select run_id from pins)"
    if age[2]:
        query = f"{free} and recorded_at < strftime('%Y-%m-%dT%H:%M:%S', 'now', ?)"
        return [row["id"] for row in db.query(query, [f"-{int(age[1])} days"])]
    newest = f"select id from runs order by {_NEWEST_FIRST} limit ?"  # noqa: S608
    return [row["id"] for row in db.query(f"{free} and id not in ({newest})", [int(age[1])])]


def remove(db: Database, ids: Sequence[str]) -> None:
    """Remove the runs `ids`, also from the disk: a command line may hold what nobody should read."""

    def work(db: Database) -> None:
        for table in schema.OF_RUNS:
            db.conn.executemany(f"delete from {table} where run_id = ?", [(each,) for each in ids])  # noqa: S608
        db.conn.executemany("delete from runs where id = ?", [(each,) for each in ids])

    store.write(db, work)
    db.vacuum()
    db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class Merged(Struct, frozen=True):
    """How many runs were `added`, `known` here before, and left out as they are `damaged`; `pins` that differ here."""

    added: int
    known: int
    damaged: int
    pins: tuple[str, ...]


def merge(db: Database, other: Path) -> Merged:
    """Add the runs of another history. What is here stays as it is; tags and notes of both are kept."""
    with store.read(other, in_place=False) as theirs:
        rows = {table: list(theirs.table(table).rows) for table in ("runs", *schema.OF_RUNS)}
        tried = promises.listed(theirs)
    ours = {row["id"] for row in db.query("select id from runs")}
    clean = [_only(row, schema.RUN_COLUMNS) for row in rows["runs"]]
    sound = [row for row in clean if _is_run(row)]
    new = [row for row in sound if row["id"] not in ours]
    added, both = {row["id"] for row in new}, {row["id"] for row in sound}
    here = {row["name"] for row in db.query("select distinct name from pins")}

    def work(db: Database) -> None:
        db.table("runs").insert_all(new, ignore=True)
        for table, columns in schema.OF_RUNS.items():
            of = added if table in ("parts", "findings") else both
            every = [_only(row, columns) for row in rows[table]]
            fitting = [
                row for row in every if _is_whole(row, table) and row["run_id"] in of and row.get("name") not in here
            ]
            db.table(table).insert_all(fitting, ignore=True)

    store.write(db, work)
    promises.merge(db, tried)
    kept = tuple(sorted({str(row["name"]) for row in rows["pins"]} & here))
    return Merged(len(new), len(sound) - len(new), len(clean) - len(sound), kept)


def _only(row: Mapping[str, Any], columns: Mapping[str, type]) -> Row:
    """The row reduced to these columns: a later perfdoctor may have more."""
    whole = checked(row, columns)
    return {name: whole[name] for name in columns}


def _is_whole(row: Row, table: str) -> bool:
    """Has the row all columns without which it says nothing?"""
    return all(row[name] is not None for name in _NEEDED[table])


def _is_run(row: Row) -> bool:
    times = row.get("step_times_ns")
    return (
        isinstance(row["id"], str)
        and bool(_PREFIX.fullmatch(row["id"]))
        and all(row[name] for name in ("recorded_at", "stored_at", "source"))
        and (times is None or bool(numbers_in(times)) or times == "[]")
    )
