"""A tuple of records that a notebook shows as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from perfdoctor.records.savings import Saving
from perfdoctor.system.html_table import SHOWN, html_table

T = TypeVar("T")


class Listing(tuple[T, ...]):
    """What it shows of each record: its numbers and texts, and of a saving the likely one."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = [_cells(each) for each in self[:SHOWN]]
        columns = list(dict.fromkeys(name for row in rows for name, value in row.items() if value not in (None, "")))
        return html_table(columns, ([row.get(name) for name in columns] for row in rows), len(self))


def _cells(record: object) -> dict[str, Any]:
    held = asdict(record) if isinstance(record, Struct) else dict(record) if isinstance(record, Mapping) else {}
    found = {name: value.likely if isinstance(value, Saving) else value for name, value in held.items()}
    return {name: value for name, value in found.items() if isinstance(value, (int, float, str)) or value is None}
