"""What was promised for a fix on this kind of machine, and what came? A row a fix that was tried, and nobody's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfdoctor.history import schema, store
from perfdoctor.history.facts import Row, checked, new_id, now, plain_text
from perfdoctor.patterns import regex

if TYPE_CHECKING:
    from sqlite_utils.db import Database

#: What a fix is called: a rule, a treatment, a verdict; of another's file nothing else is taken.
_WORD = regex(r"[a-z0-9][a-z0-9_ -]{0,59}")
#: Bytes of parameters from which on a model is of the next class.
_SIZES = (
    (10**6, "below 1 MB"),
    (10**7, "1 to 10 MB"),
    (10**8, "10 to 100 MB"),
    (10**9, "0.1 to 1 GB"),
    (10**10, "1 to 10 GB"),
)
_LARGEST = "10 GB and more"
_LISTED = 10_000
#: Where a row comes from, if another history had it: that may be of other projects.
_MERGED = "merged"
#: The fix of a row that was measured by comparing two runs, between which nobody knows what was edited.
EDIT = "edit"


def size_class(parameter_bytes: int) -> str:
    """The class of a model's size; "" where it is not known."""
    if parameter_bytes <= 0:
        return ""
    return next((name for below, name in _SIZES if parameter_bytes < below), _LARGEST)


def save(db: Database, rows: Iterable[Mapping[str, Any]]) -> int:
    """Store rows of `schema.PROMISE_COLUMNS`, without `made_at`; how many were new. One without `id` is new."""
    whole = [checked({"id": new_id(), **row, "made_at": now()}, schema.PROMISE_COLUMNS) for row in rows]
    return _added(db, whole)


def _added(db: Database, rows: Sequence[Row]) -> int:
    before = db.table("tried_fixes").count
    store.write(db, lambda db: db.table("tried_fixes").insert_all(rows, ignore=True))
    return int(db.table("tried_fixes").count - before)


def listed(db: Database, *, machine: str = "", fix: str = "") -> list[Row]:
    """The rows, newest first; those of a kind of machine, and of a fix, where these are given."""
    known = "tried_fixes" in db.table_names()  # an older file that cannot be written to
    wanted = [("machine", machine), ("fix", fix)]
    where = " and ".join(f"{name} = ?" for name, value in wanted if value) or "1"
    query = f"select * from tried_fixes where {where} order by made_at desc, id limit {_LISTED}"  # noqa: S608 ours
    return list(db.query(query, [value for _, value in wanted if value])) if known else []


def merge(db: Database, theirs: Sequence[Mapping[str, Any]]) -> int:
    """Add another history's rows, as far as they are whole; how many were new."""
    sound = [row for row in (_sound(each) for each in theirs) if row is not None]
    return _added(db, sound)


def _sound(row: Mapping[str, Any]) -> Row | None:
    whole = checked(row, schema.PROMISE_COLUMNS)
    found = {name: whole[name] for name in schema.PROMISE_COLUMNS}
    words = [found[name] for name in ("id", "fix", "verdict")]
    if not all(isinstance(word, str) and _WORD.fullmatch(word) for word in words) or not found["made_at"]:
        return None
    plain = {name: plain_text(value, 100) if isinstance(value, str) else value for name, value in found.items()}
    return {**plain, "source": _MERGED}


def in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """What rows of one fix say together: "" without any."""
    measured = [row for row in rows if row["measured_likely"] is not None]
    if not measured:
        failed = sum(row["verdict"] == "failed" for row in rows)
        return f"Earlier trials of it here: {len(rows)}, of which {failed} failed." if rows else ""
    shares = sorted(row["measured_likely"] * 100 for row in measured)
    times = "once" if len(shares) == 1 else f"{len(shares)} times"
    middle = f"{shares[0]:.0f} %" if len(shares) == 1 else f"{shares[0]:.0f} to {shares[-1]:.0f} %"
    return f"Measured here before, {times}: it saved {middle}.".replace("-", "−")
