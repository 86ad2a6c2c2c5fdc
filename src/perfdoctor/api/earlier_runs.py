"""Earlier runs of a project, and a new one: `perfdoctor.runs`, `trend` and `run`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfdoctor.api.arguments import AnyPath, in_words_of_python
from perfdoctor.api.listing import Listing
from perfdoctor.errors import PerfdoctorError, UsageError

if TYPE_CHECKING:
    from perfdoctor.diagnosis.records import Examination


def runs(*, limit: int | None = None, tag: str | None = None, db: AnyPath | None = None) -> tuple[dict[str, Any], ...]:
    """The earlier runs of this project, newest first, as `perfdoctor history --json` has them.

    Args:
        limit: At most so many; all, if not given.
        tag: Only runs with this tag.
        db: The file of the history; that of the project around the working directory, if not given.

    Returns:
        The facts of each run by name. In a notebook they are shown as a table.

    Raises:
        PerfdoctorError: There is no history, or it cannot be read.
    """
    from perfdoctor.history import runs as stored  # noqa: PLC0415
    from perfdoctor.history import store  # noqa: PLC0415
    from perfdoctor.report import history_json  # noqa: PLC0415

    with in_words_of_python(), store.read(_history(db)) as history:
        return Listing(json.loads(history_json.runs(stored.listed(history, limit=limit, tag=tag)))["runs"])


def trend(
    metric: str = "step",
    *,
    like: str | None = None,
    program: str | None = None,
    tag: str | None = None,
    db: AnyPath | None = None,
) -> dict[str, Any]:
    """How a number developed from run to run, as `perfdoctor history trend --json` has it.

    Args:
        metric: `step`, `mfu`, `memory`, `throughput`, `idle`, or a part of the step.
        like: The series of this run; of the last one, if not given.
        program: All commands with this text in them.
        tag: Only runs with this tag.
        db: The file of the history, as in `runs`.

    Returns:
        `metric`, `points` and `changes`.

    Raises:
        PerfdoctorError: There is no history, no such number, or no run that has it.
    """
    from perfdoctor.history import runs as stored  # noqa: PLC0415
    from perfdoctor.history import series, store  # noqa: PLC0415
    from perfdoctor.history.metrics import metric as named  # noqa: PLC0415
    from perfdoctor.report import history_json  # noqa: PLC0415

    with in_words_of_python():
        wanted = named(metric)
        with store.read(_history(db)) as history:
            chosen = stored.resolved(history, like) if like else None
            found = series.trend(history, wanted, folder=Path.cwd(), like=chosen, program=program, tag=tag)
        document: dict[str, Any] = json.loads(history_json.trend(found))
        return document


def stored(
    examination: Examination, paths: Sequence[Path], process: int | None, verdict: str, db: AnyPath | None
) -> str:
    """Add a run to the history: its id. Raises PerfdoctorError where that cannot be written."""
    from perfdoctor.history import facts, store  # noqa: PLC0415
    from perfdoctor.history import runs as history_runs  # noqa: PLC0415

    found = facts.facts(examination, paths, source="analyze", process=process, verdict=verdict)
    with store.written(_file(db)) as history:
        return history_runs.save(history, found)


def _history(db: AnyPath | None) -> Path:
    from perfdoctor.history import store  # noqa: PLC0415

    return store.existing(_file(db))


def _file(db: AnyPath | None) -> Path:
    from perfdoctor.history import store  # noqa: PLC0415

    found = Path(db) if db is not None else store.history_file(Path.cwd())
    if found is None:
        raise UsageError(f"{store.VARIABLE} is {store.OFF}: nothing is stored", do="Unset it, or name a file with db.")
    return found


def recorded(command: Sequence[str], output: Path, options: Sequence[str]) -> None:
    """Record the command into the folder, by the command `perfdoctor run` in a process of its own: signals, standard
    streams and exit codes are not those of this one. Raises PerfdoctorError where nothing was recorded.
    """
    if isinstance(command, str) or not command or not all(isinstance(each, str) for each in command):
        raise UsageError(
            "command is no list of texts", do='Give the program and its arguments: ["python", "train.py"].'
        )
    ours = [sys.executable, "-m", "perfdoctor", "run", "--quiet", "--no-html", "--output", str(output), *options, "--"]
    done = subprocess.run([*ours, *command], check=False)
    if done.returncode:
        raise PerfdoctorError(
            f"the command ended with {done.returncode}",
            do=f"What it printed says why; what was recorded, if anything, is in {output}.",
        )
