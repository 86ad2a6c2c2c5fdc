"""Which runs were there before, and how did a number develop?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perfdoctor.assistant.arguments import History
from perfdoctor.assistant.bounded import Answer, name, page
from perfdoctor.assistant.desk import Desk
from perfdoctor.errors import PerfdoctorError
from perfdoctor.history import runs, schema, series, store
from perfdoctor.history.metrics import metric
from perfdoctor.report import history_json
from perfdoctor.report.words import trends
from perfdoctor.report.words.wording import counted, duration

if TYPE_CHECKING:
    from sqlite_utils.db import Database

_LISTED = (
    "id", "recorded_at", "source", "project", "program", "device", "gpus", "world_size", "git_commit", "git_dirty",
    "step_ns", "mfu", "peak_memory_bytes", "verdict", "first_finding", "tags", "pins",
)  # fmt: skip


def answer(asked: History, desk: Desk) -> Answer:
    if asked.run is not None and asked.metric is not None:
        raise PerfdoctorError("run and metric are two questions", do="Ask one after the other.")
    file = desk.root.recording(asked.path or f"{schema.FOLDER}/{store.FILE}")
    if not file.is_file():
        raise PerfdoctorError("that is no history", do="Name the file history.db, or leave path out.")
    with store.read(file, in_place=False) as db:
        if asked.metric is not None:
            return _trend(db, asked, asked.metric)
        return _one(db, asked.run) if asked.run is not None else _listed(db, asked)


def _listed(db: Database, asked: History) -> Answer:
    rows, pages = page(runs.listed(db), asked, lambda row: {each: row.get(each) for each in _LISTED})
    lines = [f"{counted(runs.count(db), 'run')} stored.", *map(_line, rows)]
    return Answer("\n".join(lines), {"runs": rows, **pages})


def _line(row: dict[str, Any]) -> str:
    step = duration(row["step_ns"]) if row["step_ns"] else "step not known"
    pins = f", pinned as {', '.join(map(name, row['pins']))}" if row["pins"] else ""
    return f"{row['id']}, {row['recorded_at']}: {step}, {name(row['first_finding'] or 'no finding')}{pins}"


def _one(db: Database, text: str) -> Answer:
    found = runs.stored(db, runs.resolved(db, text))
    whole: dict[str, Any] = msgspec.json.decode(history_json.run(found))["run"]
    return Answer(name(str(whole.get("verdict") or "")), {"run": whole})


def _trend(db: Database, asked: History, wanted: str) -> Answer:
    with tempfile.TemporaryDirectory() as nowhere:  # no checkout: git is asked for nothing
        found = series.trend(db, metric(wanted), folder=Path(nowhere))
    whole: dict[str, Any] = msgspec.json.decode(history_json.trend(found))
    points, pages = page(whole["points"][::-1], asked, lambda point: point)
    kept = {key: whole[key] for key in ("metric", "series", "changes", "not_searched")}
    return Answer(trends.heading(found), {**kept, "points": points, **pages})
