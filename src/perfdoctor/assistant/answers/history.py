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
from perfdoctor.report.words.wording import counted

if TYPE_CHECKING:
    from sqlite_utils.db import Database

_LISTED = (
    "id", "recorded_at", "source", "project", "program", "device", "gpus", "world_size", "git_commit", "git_dirty",
    "step_ns", "mfu", "peak_memory_bytes", "verdict", "first_finding", "tags", "pins",
)  # fmt: skip
_MOST_STEPS = 50


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
    rows, pages = page(
        runs.listed(db), asked.cursor, asked.limit, lambda row: {each: row.get(each) for each in _LISTED}
    )
    return Answer(f"{counted(runs.count(db), 'run')} stored.", {"runs": rows, **pages})


def _one(db: Database, text: str) -> Answer:
    found = runs.stored(db, runs.resolved(db, text))
    whole: dict[str, Any] = msgspec.json.decode(history_json.run(found))["run"]
    for each in ("step_times_ns", "timed_steps_ns"):
        whole[each] = (whole.get(each) or [])[:_MOST_STEPS]
    return Answer(name(str(whole.get("verdict") or "")), {"run": whole})


def _trend(db: Database, asked: History, wanted: str) -> Answer:
    with tempfile.TemporaryDirectory() as nowhere:  # no checkout: git is asked for nothing
        found = series.trend(db, metric(wanted), folder=Path(nowhere))
    whole: dict[str, Any] = msgspec.json.decode(history_json.trend(found))
    points, pages = page(whole["points"][::-1], asked.cursor, asked.limit, lambda point: point)
    kept = {key: whole[key] for key in ("metric", "series", "changes", "not_searched")}
    return Answer(trends.heading(found), {**kept, "points": points, **pages})
