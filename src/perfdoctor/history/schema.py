"""Which tables and views does a history have, and how does an older file become a current one?

Each change of the schema is one migration, which stays as it is once it is released. `PRAGMA user_version` counts them,
which every perfdoctor reads before it touches a file: the migrations of sqlite-utils are named in a table instead.
Columns are only added, so that an older perfdoctor goes on reading and writing a newer file: `schema.works_from` is the
least version whose perfdoctor may.

    runs        one row a run: what ran, on what, how long its step was
    parts       where the time went: one row a part of the step; they sum to the run's window_ns
    findings    what was found, with the predicted saving
    tags  notes  pins      what people add
    tried_fixes    one row a fix that was tried: what was predicted, and what was measured
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.system.project import project_of

if TYPE_CHECKING:
    from sqlite_utils.db import Database

#: `PRAGMA application_id` of our files: "pdoc" in ASCII.
APPLICATION_ID = 0x70646F63
#: A project's own history lies in this folder in its root.
FOLDER = ".perfdoctor"
#: An older perfdoctor than this version may not touch a file that this one wrote.
WORKS_FROM = 1

#: Columns of `runs` in the first version, by their types. None: not known.
_FIRST_RUN_COLUMNS: Mapping[str, type] = {
    "id": str, "recorded_at": str, "stored_at": str, "source": str, "recording": str, "program": str, "command": str,
    "folder": str, "files": str, "part": str, "exit_code": int,
    "git_commit": str, "git_dirty": int, "git_branch": str, "git_from": str,
    "perfdoctor": str, "torch": str, "cuda": str, "driver": str, "tools": str,
    "device": str, "gpus": int, "world_size": int, "work": str,
    "step_ns": int, "recorded_step_ns": int, "median_ns": int, "p10_ns": int, "p90_ns": int, "steps": int,
    "steps_found_by": str, "steps_confidence": str, "step_times_ns": str, "window_ns": int,
    "predicted_low_ns": int, "predicted_ns": int, "predicted_high_ns": int, "predicted_fixed": str,
    "items": str, "items_per_second": float, "mfu": float, "hfu": float, "flop_per_step": float,
    "peak_memory_bytes": int, "reserved_memory_bytes": int, "verdict": str,
}  # fmt: skip
#: Of the fifth version: what a comparison with other runs needs beside their steps.
_FOR_COMPARISONS: Mapping[str, type] = {"unrecorded_step_ns": int, "contended_share": float, "items_per_step": float}
#: Of the seventh: which program it is (`system.project.Project`), and each step that was timed without a recorder.
_OF_PROGRAMS: Mapping[str, type] = {"project": str, "project_id": str, "program_words": str, "timed_steps_ns": str}
#: Of the eighth: where `recorded_at` is from: `run` (what recorded it), `recording` (its own clock) or `file` (when
#: that was written, which is when it was copied).
_OF_DATES: Mapping[str, type] = {"recorded_from": str}
RUN_COLUMNS: Mapping[str, type] = {**_FIRST_RUN_COLUMNS, **_FOR_COMPARISONS, **_OF_PROGRAMS, **_OF_DATES}
PART_COLUMNS: Mapping[str, type] = {"run_id": str, "part": str, "ns": int}
FINDING_COLUMNS: Mapping[str, type] = {
    "run_id": str, "position": int, "rule": str, "title": str, "category": str, "confidence": str, "symptom_of": str,
    "low_ns": int, "likely_ns": int, "high_ns": int, "speedup": float, "summary": str,
}  # fmt: skip
TAG_COLUMNS: Mapping[str, type] = {"run_id": str, "tag": str}
NOTE_COLUMNS: Mapping[str, type] = {"run_id": str, "noted_at": str, "note": str}
PIN_COLUMNS: Mapping[str, type] = {"name": str, "run_id": str, "pinned_at": str}
PROMISE_COLUMNS: Mapping[str, type] = {
    "id": str, "made_at": str, "rule": str, "fix": str, "machine": str, "torch": str, "size": str,
    "promised_low": float, "promised_likely": float, "promised_high": float,
    "measured_low": float, "measured_likely": float, "measured_high": float, "pairs": int, "verdict": str,
    "source": str,
}  # fmt: skip

#: The tables that belong to runs, with their columns. Each has a `run_id`.
OF_RUNS: Mapping[str, Mapping[str, type]] = {
    "parts": PART_COLUMNS, "findings": FINDING_COLUMNS, "tags": TAG_COLUMNS, "notes": NOTE_COLUMNS, "pins": PIN_COLUMNS,
}  # fmt: skip


def _facts(db: Database, _file: Path) -> None:
    db.table("runs").create(dict(_FIRST_RUN_COLUMNS), pk="id", not_null={"id", "recorded_at", "stored_at", "source"})
    db.table("runs").create_index(["recorded_at"])
    _create(db, "parts", PART_COLUMNS, ("run_id", "part"))
    _create(db, "findings", FINDING_COLUMNS, ("run_id", "position"))
    db.table("findings").create_index(["rule"])


def _added_by_people(db: Database, _file: Path) -> None:
    _create(db, "tags", TAG_COLUMNS, ("run_id", "tag"))
    _create(db, "notes", NOTE_COLUMNS, ("run_id", "noted_at", "note"))
    _create(db, "pins", PIN_COLUMNS, ("name", "run_id"))


@cache
def views() -> Mapping[str, str]:
    """The query of each view for people, in ms and per cent; docs/history.md describes them."""
    return {file.stem: file.read_text("utf-8").strip() for file in Path(__file__).with_name("views").glob("*.sql")}


def _views(db: Database, _file: Path) -> None:
    for name, query in views().items():
        db.create_view(name, query, replace=True)


def _for_comparisons(db: Database, _file: Path) -> None:
    for name, kind in _FOR_COMPARISONS.items():
        db.table("runs").add_column(name, kind)


def _of_programs(db: Database, file: Path) -> None:
    """Add the columns; the runs of a project's own history are of that project, as most are started in its root."""
    for name, kind in _OF_PROGRAMS.items():
        db.table("runs").add_column(name, kind)
    _views(db, file)
    if file.parent.name == FOLDER:
        of = project_of(file.parent.parent)
        db.conn.execute("update runs set project = ?, project_id = ?", [of.name, of.id])


def _tried_fixes(db: Database, _file: Path) -> None:
    _create(db, "tried_fixes", PROMISE_COLUMNS, ("id",))
    db.table("tried_fixes").create_index(["machine", "fix"])


def _of_dates(db: Database, _file: Path) -> None:
    for name, kind in _OF_DATES.items():
        db.table("runs").add_column(name, kind)


def _create(db: Database, table: str, columns: Mapping[str, type], key: tuple[str, ...]) -> None:
    db.table(table).create(
        dict(columns), pk=key, not_null=set(key), foreign_keys=[("run_id", "runs", "id")] if "run_id" in columns else []
    )


#: In their order: migration n makes version n of version n - 1, of what lies in a file, also where that is migrated in
#: memory.
#: The fourth makes the views once more: in the third `partition` named a column that two tables have. So does the
#: sixth: the step of `overview` is the unrecorded one wherever it is known, and its percentiles are of that step.
MIGRATIONS: tuple[Callable[[Database, Path], None], ...] = (
    _facts, _added_by_people, _views, _views, _for_comparisons, _views, _of_programs,
    _tried_fixes, _of_dates,
)  # fmt: skip
VERSION = len(MIGRATIONS)
