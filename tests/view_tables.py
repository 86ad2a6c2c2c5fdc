"""Tables of pages as rows of plain Python, and the rows of a Timeline to recompute them from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from folders import ROOT

from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Frame, Text
from perfdoctor.records.views import Table

#: Recordings of the fixtures that have GPU work, from both tools.
GPU_RECORDINGS = [
    path
    for name in ("healthy", "straggler", "communication-exposed", "sync-drains-queue", "pageable", "cuda-graphs")
    for path in sorted((ROOT / "fixtures" / name).iterdir())
    if path.is_dir()
]


def rows_of(table: Table) -> list[dict[str, Any]]:
    """One mapping of column name to value a row; what is not known is None."""
    values = [[_plain(value) for value in column.values] for column in table.columns]
    return [dict(zip((column.name for column in table.columns), row, strict=True)) for row in zip(*values, strict=True)]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def tables_of(views: Iterator[Table]) -> dict[str, list[dict[str, Any]]]:
    return {table.id: rows_of(table) for table in views}


def plain_rows(frame: Frame) -> list[SimpleNamespace]:
    """The rows of a frame as objects."""
    columns = [list(column) if isinstance(column, Text) else column.tolist() for column in frame.columns.values()]
    return [SimpleNamespace(**dict(zip(frame.columns, row, strict=True))) for row in zip(*columns, strict=True)]


def window_of(place: Place) -> tuple[int, int]:
    return int(place.window.starts[0]), int(place.window.ends[-1])


def inside_ns(row: SimpleNamespace, window: tuple[int, int]) -> int:
    return max(min(row.end_ns, window[1]) - max(row.start_ns, window[0]), 0)


def on_device(run: Run, place: Place, *signals: str) -> list[SimpleNamespace]:
    """The rows of one place that touch its window."""
    begin, end = window_of(place)
    return [
        row
        for signal in signals
        for row in plain_rows(run.timeline[signal])
        if (row.rank, row.device) == (place.rank, place.device) and row.end_ns > begin and row.start_ns < end
    ]


def covered_ns(pieces: Sequence[tuple[int, int]]) -> int:
    """How long any of the pieces lasts."""
    total, reach = 0, -math.inf
    for start, end in sorted(pieces):
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return int(total)
