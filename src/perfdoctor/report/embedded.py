"""How is data embedded in the page? As JSON in script elements, escaped so that no text from a trace can end them.

The diagnosis is plain JSON, readable in the source and for scripts. The views are deflated JSON in base64, a tenth of
the size; the page unpacks them with the browser's DecompressionStream.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perfdoctor.patterns import regex
from perfdoctor.records.views import Node, Table, TableColumn, TimelineView, Views
from perfdoctor.report import timeline_json
from perfdoctor.report.words.foreign_text import clean_block, clean_name

_NOT_IN_SCRIPT = regex("[<>&\\x7f-\\x9f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff]")
#: For a timeline of 2 MB, level 6 saves another 5 % and takes three times as long; level 9 up to fifty times.
_LEVEL = 4
#: More digits than any table shows of a measured number.
_DIGITS = 6
_LONGEST_NODE = 300


def plain(data: str) -> str:
    """JSON that cannot end its script element, and in which invisible characters are escaped."""
    return _NOT_IN_SCRIPT.sub(lambda found: f"\\u{ord(found[0]):04x}", data)


def packed(views: Views) -> str:
    """Tables and icicles as base64 of raw-deflated JSON."""
    return _deflated({
        "tables": [_table(table) for table in views.tables],
        "icicles": [
            {"id": icicle.id, "title": icicle.title, "unit": icicle.unit, "explained": icicle.explained,
             "root": _node(icicle.root)}
            for icicle in views.icicles
        ],
    })  # fmt: skip


def packed_timeline(timeline: TimelineView) -> str:
    """A timeline as base64 of raw-deflated JSON."""
    return _deflated(timeline_json.document(timeline))


def packed_timelines(timelines: Mapping[str, TimelineView]) -> str:
    """Timelines by name as base64 of raw-deflated JSON."""
    return _deflated({name: timeline_json.document(view) for name, view in timelines.items()})


def _deflated(document: Any) -> str:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(compressor.compress(msgspec.json.encode(document)) + compressor.flush()).decode()


def _table(table: Table) -> dict[str, Any]:
    return {
        "page": table.page, "id": table.id, "title": table.title, "explained": table.explained,
        "rows_in_all": table.rows_in_all, "columns": [_column(column) for column in table.columns],
    }  # fmt: skip


def _node(node: Node) -> dict[str, Any]:
    found = {"name": clean_name(node.name, _LONGEST_NODE), "value": _number(node.value)}
    found |= {"muted": True} if node.is_muted else {}
    return {**found, "children": [_node(each) for each in node.children]} if node.children else found


def _column(column: TableColumn) -> dict[str, Any]:
    values: Sequence[Any] = [
        clean_block(value) if isinstance(value, str) else _number(value) for value in column.values
    ]
    return {
        "name": column.name, "unit": column.unit, "explained": column.explained, "adds_up": column.adds_up,
        "values": values,
    }  # fmt: skip


def _number(value: float | None) -> float | None:
    """The number, None where unknown: whole ones as integers, others with `_DIGITS` significant digits."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() else float(f"{value:.{_DIGITS}g}")
