"""Which tables does an export of the timeline have, with which columns, units and keys?

A signal's table has the signal's columns, an id, and what follows from several signals: which call launched a kernel,
which op is around it, which step it belongs to. What each column means is in tables.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from perfdoctor.system.toml_tables import shipped_table
from perfdoctor.vocabulary.signals import SIGNALS

_FILE = Path(__file__).with_name("tables.toml")

#: Signals' columns under another name: GROUP is a word of SQL.
RENAMED: Mapping[str, str] = {"group": "group_name"}

#: What a table has beside its signal's columns.
_DERIVED: Mapping[str, Mapping[str, type]] = {
    "kernels": {"family": str, "launch_id": int, "step_id": int},
    "copies": {"launch_id": int, "step_id": int},
    "collectives": {"launch_id": int, "step_id": int},
    "calls": {"op_id": int, "range_id": int},
    "ops": {"parent_id": int, "range_id": int, "step_id": int},
    "ranges": {"parent_id": int},
    "functions": {"parent_id": int},
}
_WHEN = {"start_ns": int, "end_ns": int, "duration_ns": int}
_ON_DEVICE = {"rank": int, "device": int}

#: Tables that are no signal's.
_OTHERS: Mapping[str, Mapping[str, type]] = {
    "launches": {
        "id": int, "rank": int, "process": int, "thread": int, **_WHEN, "name": str, "op_id": int, "range_id": int,
        "step_id": int, "work_count": int, "first_start_ns": int,
    },
    "steps": {
        "id": int, **_ON_DEVICE, "number": int, **_WHEN, "is_used": bool, "found_by": str, "confidence": str,
        "compute_ns": int, "exposed_communication_ns": int, "exposed_copy_ns": int, "idle_ns": int,
    },
    "idle": {"id": int, **_ON_DEVICE, **_WHEN, "cause": str, "step_id": int},
    "exposed": {"id": int, **_ON_DEVICE, **_WHEN, "kind": str, "step_id": int},
    "parts": {
        "id": int, **_ON_DEVICE, "part": str, "label": str, "is_idle": bool, "part_ns": int, "part_ns_per_step": int,
        "window_share": float,
    },
    "findings": {
        "id": int, "rule": str, "title": str, "summary": str, "category": str, "confidence": str,
        "saving_low_ns_per_step": int, "saving_likely_ns_per_step": int, "saving_high_ns_per_step": int,
        "speedup_low": float, "speedup_likely": float, "speedup_high": float, "symptom_of_id": int,
    },
    "outcomes": {"id": int, "rule": str, "status": str, "missing": str},
    "processes": {"id": int, "rank": int, "process": int, "start_ns": int, "end_ns": int, "row_count": int},
    "threads": {"id": int, "process": int, "thread": int, "name": str},
    "devices": {
        "id": int, **_ON_DEVICE, "name": str, "sm_count": int, "compute_capability": int, "memory_bytes": int,
        "memory_bytes_per_second": int,
    },
    "sources": {"id": int, "kind": str, "file": str, "tool_version": str, "ranks": str, "cut_off": bool},
    "signals": {"id": int, "name": str, "label": str, "is_recorded": bool, "row_count": int},
    "notes": {"id": int, "note": str},
    "meta": {"id": int, "key": str, "value": str, "unit": str, "meaning": str},
    "columns": {
        "id": int, "table_name": str, "column_name": str, "type": str, "unit": str, "meaning": str,
    },
}  # fmt: skip

#: Where a column's values are the ids of another table's rows.
REFERS: Mapping[str, str] = {
    "launch_id": "launches", "step_id": "steps", "op_id": "ops", "range_id": "ranges", "symptom_of_id": "findings",
    "kernel_id": "kernels",
}  # fmt: skip

#: The signals whose rows are the timeline, and what `events` calls one row of each.
EVENTS: Mapping[str, str] = {
    "kernels": "kernel", "copies": "copy", "collectives": "collective", "calls": "call", "ops": "op",
    "ranges": "range", "functions": "function", "os_calls": "os_call",
}  # fmt: skip
_EVENT = {
    "kind": str, "id": int, "rank": int, "process": int, "thread": int, "device": int, "stream": int, **_WHEN,
    "name": str, "step_id": int,
}  # fmt: skip

_TOTALS = "count(*) AS count, sum(duration_ns) AS total_ns, avg(duration_ns) AS mean_ns, max(duration_ns) AS longest_ns"
_TOTALLED = {"count": int, "total_ns": int, "mean_ns": float, "longest_ns": int}

#: Views by name: their columns, and their query.
VIEWS: Mapping[str, tuple[Mapping[str, type], str]] = {
    "events": (_EVENT, ""),  # of all EVENTS: see events_query
    "kernel_totals": (
        {"rank": int, "name": str, "family": str, **_TOTALLED},
        f"SELECT rank, name, family, {_TOTALS} FROM kernels GROUP BY rank, name ORDER BY total_ns DESC",  # noqa: S608
    ),
    "op_totals": (
        {"rank": int, "name": str, **_TOTALLED},
        f"SELECT rank, name, {_TOTALS} FROM ops GROUP BY rank, name ORDER BY total_ns DESC",  # noqa: S608
    ),
    "copy_totals": (
        {"rank": int, "direction": str, "host_memory": str, **_TOTALLED, "total_bytes": int},
        (f"SELECT rank, direction, host_memory, {_TOTALS}, sum(bytes) AS total_bytes FROM copies"  # noqa: S608
        " GROUP BY rank, direction, host_memory ORDER BY total_ns DESC"),
    ),
    "collective_totals": (
        {"rank": int, "kind": str, "group_name": str, **_TOTALLED, "total_bytes": int},
        (f"SELECT rank, kind, group_name, {_TOTALS}, sum(bytes) AS total_bytes FROM collectives"  # noqa: S608
        " GROUP BY rank, kind, group_name ORDER BY total_ns DESC"),
    ),
    "idle_totals": (
        {"rank": int, "device": int, "cause": str, **_TOTALLED},
        (f"SELECT rank, device, cause, {_TOTALS} FROM idle GROUP BY rank, device, cause"  # noqa: S608
        " ORDER BY total_ns DESC"),
    ),
    "launched_kernels": (
        {
            "kernel_id": int, "rank": int, "device": int, "stream": int, **_WHEN, "name": str, "step_id": int,
            "launch_id": int, "launch_name": str, "launch_start_ns": int, "queued_ns": int,
            "op_id": int, "op_name": str, "range_id": int, "range_name": str,
        },
        ("SELECT kernels.id AS kernel_id, kernels.rank, kernels.device, kernels.stream, kernels.start_ns,"
        " kernels.end_ns, kernels.duration_ns, kernels.name, kernels.step_id, kernels.launch_id,"
        " launches.name AS launch_name, launches.start_ns AS launch_start_ns,"
        " kernels.start_ns - launches.end_ns AS queued_ns, launches.op_id, ops.name AS op_name,"
        " launches.range_id, ranges.name AS range_name"
        " FROM kernels LEFT JOIN launches ON launches.id = kernels.launch_id"
        " LEFT JOIN ops ON ops.id = launches.op_id LEFT JOIN ranges ON ranges.id = launches.range_id"),
    ),
}  # fmt: skip


class Column(Struct, frozen=True):
    """`kind`: int, float, bool or str. `unit`: "" for numbers without one, and for text. `refers`: the table whose ids
    it holds, "" for none.
    """

    kind: type
    unit: str
    meaning: str
    refers: str = ""


class Table(Struct, frozen=True):
    """`signal`: its rows are those of this signal, "" for none. `query`: what a view shows, "" for a table."""

    name: str
    meaning: str
    columns: Mapping[str, Column]
    signal: str = ""
    query: str = ""

    @property
    def is_view(self) -> bool:
        return bool(self.query)


@cache
def tables() -> Mapping[str, Table]:
    """Every table, in the order of the documentation: first the timeline, then what follows from it, then the rest."""
    said = shipped_table(_FILE)
    known = {**{name: _of_signal(name) for name in SIGNALS}, **_OTHERS}
    return {
        name: Table(name, meaning, _columns(name, known[name], said), name if name in SIGNALS else "")
        for name, meaning in said["tables"].items()
    }


@cache
def views() -> Mapping[str, Table]:
    said = shipped_table(_FILE)
    return {
        name: Table(name, meaning, _columns(name, VIEWS[name][0], said), query=VIEWS[name][1] or events_query())
        for name, meaning in said["views"].items()
    }


def _of_signal(name: str) -> dict[str, type]:
    """The id, the signal's columns, how long it took, and what else is known of each row."""
    found: dict[str, type] = {"id": int}
    for column, kind in SIGNALS[name].columns.items():
        found[RENAMED.get(column, column)] = kind
        if column == "end_ns":
            found["duration_ns"] = int
    return {**found, **_DERIVED.get(name, {})}


def _columns(table: str, kinds: Mapping[str, type], said: Mapping[str, Mapping[str, object]]) -> dict[str, Column]:
    own = said["of"].get(table, {})
    assert isinstance(own, dict)
    return {
        name: Column(
            kind, unit(name, kind), str(own.get(name) or said["columns"][name]),
            table if name == "parent_id" else REFERS.get(name, ""),
        )
        for name, kind in kinds.items()
    }  # fmt: skip


#: The end of a column's name says its unit.
_UNITS: Mapping[str, str] = {
    "_bytes_per_second": "bytes/s", "_ns_per_step": "ns per step", "_ns": "ns", "_bytes": "bytes", "_share": "0 to 1",
    "_mhz": "MHz", "_hz": "Hz", "_w": "W", "_c": "°C", "_cores": "cores",
}  # fmt: skip


def unit(column: str, kind: type) -> str:
    """Of a column by its name."""
    if kind is bool:
        return "0 or 1"
    if column in ("bytes", "cores"):
        return column
    return next((unit for ending, unit in _UNITS.items() if kind is not str and column.endswith(ending)), "")


def events_query() -> str:
    """All events, kind by kind."""
    return " UNION ALL ".join(
        f"SELECT {', '.join(_event_column(column, table, kind) for column in _EVENT)} FROM {table}"  # noqa: S608
        for table, kind in EVENTS.items()
    )


def _event_column(column: str, table: str, kind: str) -> str:
    if column == "kind":
        return f"'{kind}' AS kind"
    has = tables()[table].columns
    return column if column in has else f"NULL AS {column}"
