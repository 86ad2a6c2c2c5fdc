"""What does a script read of the history? JSON and CSV, format 1: keys are added, never renamed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfdoctor.history.facts import OF_JSON
from perfdoctor.history.schema import PROMISE_COLUMNS
from perfdoctor.report.words.foreign_text import csv_cell

if TYPE_CHECKING:
    from perfdoctor.history.facts import Row
    from perfdoctor.history.runs import StoredRun
    from perfdoctor.history.series import LevelChange, Trend

FORMAT = 1
_POINT = ("run", "recorded_at", "commit", "dirty", "value", "low", "high")


def runs(rows: Sequence[Row]) -> str:
    return _text({"format": FORMAT, "runs": [_run(row) for row in rows]})


def run(stored: StoredRun) -> str:
    return _text(
        {
            "format": FORMAT,
            "run": {
                **_run(stored.facts),
                "parts_ns": dict(stored.parts),
                "findings": [{key: value for key, value in row.items() if key != "run_id"} for row in stored.findings],
                "tags": list(stored.tags),
                "notes": [{"noted_at": row["noted_at"], "note": row["note"]} for row in stored.notes],
                "pins": list(stored.pins),
            },
        }
    )


def trend(found: Trend) -> str:
    metric = found.metric
    return _text(
        {
            "format": FORMAT,
            "metric": {"name": metric.name, "label": metric.label, "unit": metric.unit, "better": metric.better},
            "series": dict(found.what),
            "points": [{name: getattr(point, name) for name in _POINT} for point in found.points],
            "changes": [_change(each) for each in found.changes],
            "not_searched": found.not_searched or None,
        }
    )


def trend_csv(found: Trend) -> str:
    """Numbers, times and ids alone: no text of people, which a spreadsheet could take for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_POINT)
    writer.writerows([getattr(point, name) for name in _POINT] for point in found.points)
    return text.getvalue()


def promises(rows: Sequence[Row]) -> str:
    return _text({"format": FORMAT, "promises": list(rows)})


def promises_csv(rows: Sequence[Row]) -> str:
    """A header, and a row a fix that was tried; of another's file no text becomes a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(PROMISE_COLUMNS)
    writer.writerows([csv_cell(row[name]) for name in PROMISE_COLUMNS] for row in rows)
    return text.getvalue()


def _run(row: Row) -> dict[str, Any]:
    lists = {name: stored_list(row.get(name)) for name in OF_JSON}
    dirty = row.get("git_dirty")
    return {**row, **lists, "git_dirty": None if dirty is None else bool(dirty)}


def stored_list(value: object) -> object:
    """What a column of JSON holds; None where it is empty or damaged."""
    try:
        return json.loads(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _change(each: LevelChange) -> dict[str, Any]:
    known = each.commits
    return {
        "kind": each.change.kind,
        "worse": each.is_worse,
        "before": each.change.before,
        "after": each.change.after,
        "last_run": each.last.run,
        "first_run": each.first.run,
        "last_commit": each.last.commit or None,
        "first_commit": each.first.commit or None,
        "commits": None
        if known is None or known.commits is None
        else [{"commit": short, "subject": subject} for short, subject in known.commits],
        "differs": [{"what": what, "before": before, "after": after} for what, before, after in each.differs],
    }


def _text(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
