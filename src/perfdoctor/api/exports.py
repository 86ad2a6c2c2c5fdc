"""How does `Diagnosis.export` write files? As the command does."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.export.perfetto import render
from perfdoctor.export.tables.contents import RecordingTables
from perfdoctor.export.tables.write import Outputs
from perfdoctor.system.paths import draft

if TYPE_CHECKING:
    from perfdoctor.api.arguments import AnyPath
    from perfdoctor.diagnosis.records import Examination


def export(
    examination: Examination, sqlite: AnyPath | None, parquet: AnyPath | None, arrow: AnyPath | None,
    perfetto: AnyPath | None, only: tuple[str, ...],
) -> None:  # fmt: skip
    """Write what is not None. Raises PerfdoctorError for the first that cannot be written."""
    database, folder, events, trace = (
        Path(path) if path is not None else None for path in (sqlite, parquet, arrow, perfetto)
    )
    outputs = Outputs(database, folder, events, only)
    if not outputs and trace is None:
        raise UsageError("there is no output file", do='Give one: sqlite="train.db", or perfetto="train.pftrace".')
    outputs.check_asked()
    outputs.check_free()
    if trace is not None and trace.exists():
        raise PerfdoctorError(f"--perfetto {trace} exists", do="Choose another name, or remove it.")
    option = ""
    try:
        contents = RecordingTables(examination.run, lambda: examination.diagnosis)
        for option in outputs.targets:
            outputs.write(option, contents)
        if trace is not None:
            option = "--perfetto"
            with draft(trace) as made, made.open("wb") as stream:
                stream.writelines(render(examination))
    except (OSError, sqlite3.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise PerfdoctorError(
            f"{option} cannot be written: {why}", do="Choose a place that you may write to."
        ) from error
