"""How does `perfdoctor export` write tables?"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.cli import report_files, say
from perfdoctor.cli.progress import progress
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.export.tables.write import Outputs
    from perfdoctor.system.remote import RemoteFile

_CHOOSE = "Choose a place that you may write to, with room for it."


def check_files(outputs: Outputs, inputs: Sequence[Path | RemoteFile]) -> None:
    """Refuse to overwrite recordings and what is not ours, before the analysis."""
    for option, target in outputs.targets.items():
        if report_files.is_input(target, inputs):
            raise PerfdoctorError(f"{option} {target} is one of the recordings", do="Choose another name.")
    outputs.check_free()


def export(examination: Examination, outputs: Outputs, *, quiet: bool, verbose: bool) -> None:
    """Write the outputs, each whole or not at all. Raises PerfdoctorError for the first that cannot be written."""
    from perfdoctor.export.tables.contents import RecordingTables

    contents = RecordingTables(examination.run, lambda: examination.diagnosis)
    for option, target in outputs.targets.items():
        with progress(quiet=quiet, verbose=verbose) as update:
            update(f"Writing {target.name}")
            try:
                outputs.write(option, contents)
            except (OSError, sqlite3.Error) as error:
                raise report_files.unwritable(f"{option} {target}", error, _CHOOSE) from error
        if not quiet:
            say.line(f"Wrote {target}.", err=True)
