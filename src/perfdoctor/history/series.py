"""How did one number develop from run to run of one program, and which run was the first of a new level?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from perfdoctor.errors import UsageError
from perfdoctor.history import schema
from perfdoctor.history.changes import LevelShift, MissingLibraryError, change_points
from perfdoctor.history.comparable import program_of
from perfdoctor.history.facts import Row, checked
from perfdoctor.history.metrics import Metric, percentile_ns
from perfdoctor.system.checkout import commits_between

if TYPE_CHECKING:
    from sqlite_utils.db import Database

#: Of more runs these are the newest: every pair of them is compared.
MOST_RUNS = 500
#: More commits than these are counted no further.
MOST_COMMITS = 200
#: What has an effect on the speed beside the program's own code.
_BESIDE = ("torch", "cuda", "driver", "tools", "perfdoctor")


class Point(Struct, frozen=True):
    """One run of the series. `low`, `high`: the tenth and ninetieth percentile of its steps, of a step time only."""

    run: str
    recorded_at: str
    commit: str
    dirty: bool
    value: float
    low: float | None
    high: float | None
    facts: Row


class CommitRange(Struct, frozen=True):
    """`commits`: (short id, subject) of those after `last` up to `first`, newest first; None: not known to git."""

    last: str
    first: str
    commits: tuple[tuple[str, str], ...] | None


class LevelChange(Struct, frozen=True):
    """`first` is the first run of the new level, `last` the one before it.

    `differs`: (what, before, after) of the two.
    """

    change: LevelShift
    is_worse: bool
    last: Point
    first: Point
    commits: CommitRange | None
    differs: tuple[tuple[str, str, str], ...]


class Trend(Struct, frozen=True):
    """`what`: program, device … that all runs of the series share. `unknown`: runs of it without this number.

    `elsewhere`: runs of other series. `repeated`: analyses of recordings that were analysed again later.
    `not_searched`: why there are no changes, if nobody looked for them.
    """

    metric: Metric
    what: Mapping[str, str]
    points: tuple[Point, ...]
    changes: tuple[LevelChange, ...]
    unknown: int
    elsewhere: int
    repeated: int
    not_searched: str


Key = tuple[object, ...]


def key_of(row: Row) -> Key:
    """Runs are compared where this is the same: what ran, on what, and which part of it was analysed."""
    return (row["project_id"], program_of(row), row["device"], row["gpus"], row["world_size"], row["part"])


def trend(
    db: Database, metric: Metric, *, folder: Path, like: str | None = None, program: str | None = None,
    tag: str | None = None,
) -> Trend:  # fmt: skip
    """The series of the newest run, or of the run `like`; of all commands that contain `program`, if that is given.

    `folder`: where git is asked for commits. Raises UsageError where nothing fits.
    """
    every = _rows(db, tag)
    last = latest(every)
    pool = [row for row in last if program is None or program in (row["command"] or row["files"] or "")]
    if like:
        chosen = next((row for row in every if row["id"] == like), None)
    else:
        chosen = next((row for row in reversed(pool) if metric.of(row, row["parts"]) is not None), None)
    if chosen is None:
        raise UsageError(
            f"no stored run has a {metric.name}" + (f" and {program!r} in its command" if program else ""),
            do="perfdoctor history lists the runs, perfdoctor history show one of them with all its numbers.",
        )
    wanted = _key(chosen, joined=program is not None)
    same = [row for row in pool if _key(row, joined=program is not None) == wanted]
    points = [point for row in same if (point := _point(row, metric)) is not None][-MOST_RUNS:]
    try:
        changes, not_searched = change_points([point.value for point in points]), ""
    except MissingLibraryError as error:
        changes, not_searched = (), f"{error.what}: {error.do}"
    return Trend(
        metric, _what(chosen, program), tuple(points),
        tuple(_level_change(change, points, metric, folder) for change in changes),
        len(same) - len(points), len(last) - len(same), len(every) - len(last), not_searched,
    )  # fmt: skip


def _key(row: Row, *, joined: bool) -> Key:
    return key_of(row)[2:] if joined else key_of(row)


def _rows(db: Database, tag: str | None) -> list[Row]:
    """The stored runs, oldest first, each with its `parts`."""
    where = "where exists (select 1 from tags where run_id = runs.id and tag = :tag)" if tag is not None else ""
    rows = list(db.query(f"select * from runs {where} order by recorded_at, stored_at, id", {"tag": tag}))  # noqa: S608
    parts: dict[str, dict[str, int]] = {}
    for run, part, ns in db.conn.execute("select run_id, part, ns from parts"):
        if isinstance(ns, int) and isinstance(part, str):
            parts.setdefault(run, {})[part] = ns
    return [{**checked(row, schema.RUN_COLUMNS), "parts": parts.get(row["id"], {})} for row in rows]


def latest(rows: Sequence[Row]) -> list[Row]:
    """The rows with only the last of several analyses of one recording, which are one measurement and no series."""
    by_age = sorted(rows, key=lambda row: (row["stored_at"], row["id"]))
    kept = set({(row["recording"] or row["id"], row["part"]): row["id"] for row in by_age}.values())
    return [row for row in rows if row["id"] in kept]


def _point(row: Row, metric: Metric) -> Point | None:
    value = metric.of(row, row["parts"])
    if value is None:
        return None
    low, high = (_percentile(row, metric, column) for column in ("p10_ns", "p90_ns"))
    return Point(row["id"], row["recorded_at"], row["git_commit"] or "", bool(row["git_dirty"]), value, low, high, row)


def _percentile(row: Row, metric: Metric, column: str) -> float | None:
    if metric.name == "step":
        return percentile_ns(row, column)
    return float(row[column]) if metric.name == "median" and isinstance(row[column], int) else None


def _what(row: Row, program: str | None) -> dict[str, str]:
    gpus = row["gpus"] or 0
    device = row["device"] or "no GPU"
    known = {
        "project": "" if program else row["project"] or "",
        "program": program or row["command"] or program_of(row),
        "device": f"{gpus} × {device}" if gpus > 1 else device,
        "ranks": str(row["world_size"] or ""),
        "part": row["part"] or "",
    }
    return {name: value for name, value in known.items() if value}


def _level_change(change: LevelShift, points: Sequence[Point], metric: Metric, folder: Path) -> LevelChange:
    last, first = points[change.at - 1], points[change.at]
    rose = change.after > change.before
    differs = tuple(
        (name, str(last.facts[name] or "unknown"), str(first.facts[name] or "unknown"))
        for name in _BESIDE
        if last.facts[name] != first.facts[name]
    )
    between = None
    if change.kind == "step" and last.commit and first.commit:
        commits = commits_between(folder, last.commit, first.commit, MOST_COMMITS)
        between = CommitRange(last.commit, first.commit, commits)
    return LevelChange(change, rose == (metric.better == "lower"), last, first, between, differs)
