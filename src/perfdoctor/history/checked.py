"""What may a row hold? SQLite stores any type in any column, and a file may come from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfdoctor.history.facts import OF_JSON, Row, plain_text

#: Columns of `runs` that every row has: what is none is empty text here.
_ALWAYS = ("id", "recorded_at", "stored_at", "source")


def checked(row: Mapping[str, Any], columns: Mapping[str, type]) -> Row:
    """The row with each of these columns in its type; anything else is not known. Other columns stay."""
    return {**row, **{name: _value(name, row.get(name), kind) for name, kind in columns.items()}}


def _value(name: str, value: object, kind: type) -> object:
    fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if not fits:
        return "" if name in _ALWAYS else None
    return plain_text(value) if isinstance(value, str) and name not in OF_JSON else value
