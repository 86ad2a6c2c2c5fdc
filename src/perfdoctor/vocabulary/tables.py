"""Which tables does an export of the timeline have, with which columns, units and keys?

A signal's table has the signal's columns (signals.toml), an id, and what follows from several signals: which call
launched a kernel, which op is around it, which step it belongs to. That, and all other tables, are in tables.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfdoctor.system import toml_tables
from perfdoctor.vocabulary.signals import DECLARED, EVENTS, SIGNALS, DeclaredColumn, declared

#: Signals whose rows lie inside of each other on a thread, and have what was launched in them.
NESTED = ("ops", "ranges", "functions", "modules")

_TOTALS = "count(*) AS count, sum(duration_ns) AS total_ns, avg(duration_ns) AS mean_ns, max(duration_ns) AS longest_ns"
_GPU = "sum(self_ns) AS self_ns, sum(gpu_ns) AS gpu_ns, sum(self_gpu_ns) AS self_gpu_ns"


class ExportedTable(Struct, frozen=True):
    """`signal`: its rows are those of this signal, "" for none. `query`: what a view shows, "" for a table."""

    name: str
    meaning: str
    columns: Mapping[str, DeclaredColumn]
    signal: str = ""
    query: str = ""

    @property
    def is_view(self) -> bool:
        return bool(self.query)


@cache
def tables() -> Mapping[str, ExportedTable]:
    """Every table, in the order of the documentation: first the timeline, then what follows from it, then the rest."""
    of_signals = {name: _of_signal(name) for name in SIGNALS}
    return {**of_signals, **{name: _declared(name, row) for name, row in _said()["tables"].items()}}


@cache
def views() -> Mapping[str, ExportedTable]:
    return {name: _declared(name, row) for name, row in _said()["views"].items()}


@cache
def _said() -> toml_tables.Table:
    return toml_tables.shipped_table(Path(__file__).with_name("tables.toml"))


def _known_columns() -> Mapping[str, Any]:
    """All columns of all tables, as the files declare them."""
    return {**DECLARED["columns"], **_said()["columns"]}


def _of_signal(name: str) -> ExportedTable:
    """The id, the signal's columns, how long each row took, and what else is known of it."""
    more = _said()["derived"].get(name, {"columns": ""})
    columns = " ".join(("id", *SIGNALS[name].declared, more["columns"]))
    own = {**DECLARED["signals"][name].get("own", {}), **more.get("own", {})}
    names = columns.replace(" end_ns", " end_ns duration_ns").split()
    return ExportedTable(name, SIGNALS[name].meaning, declared(names, _known_columns(), own), name)


def _declared(name: str, row: Mapping[str, Any]) -> ExportedTable:
    signals = f"{', '.join(EVENTS[:-1])} and {EVENTS[-1]}"
    columns = declared(row["columns"].split(), _known_columns(), row.get("own", {}))
    query = row.get("query", "").replace("{totals}", _TOTALS).replace("{gpu}", _GPU)
    if name == "events":
        query = _events_query(columns)
    return ExportedTable(name, row["meaning"].replace("{signals}", signals), columns, query=query)


def _events_query(columns: Mapping[str, DeclaredColumn]) -> str:
    """All events, kind by kind: NULL for what a kind has no column for."""

    def shown(column: str, name: str) -> str:
        if column == "kind":
            return f"'{SIGNALS[name].event}' AS kind"
        return column if column in tables()[name].columns else f"NULL AS {column}"

    return " UNION ALL ".join(
        f"SELECT {', '.join(shown(column, name) for column in columns)} FROM {name}"  # noqa: S608
        for name in EVENTS
    )
