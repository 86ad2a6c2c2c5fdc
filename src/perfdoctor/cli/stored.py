"""Is what is to be analysed a diagnosis already? Then it is printed again, and nothing is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.system.remote import RemoteFile


def diagnosis_of(paths: Sequence[Path | RemoteFile], options: Mapping[str, object]) -> Diagnosis | None:
    """None where it is a recording. Raises UsageError where options were given that ask more than a diagnosis holds."""
    if len(paths) != 1 or not isinstance(paths[0], Path):
        return None
    if paths[0].suffix != ".json" and not (paths[0] / "diagnosis.json").is_file():  # nearly all
        return None
    from perfdoctor.report import json_document

    if json_document.file_of(paths[0]) is None:
        return None
    if given := [name for name, value in options.items() if value]:
        raise UsageError(
            f"{given[0]} asks for the recording, and {paths[0]} holds its diagnosis alone",
            do="Give the recording, or only --format, --json, --all, --fail-on and --quiet.",
        )
    from perfdoctor.report.stored_diagnosis import stored

    return stored(str(paths[0]), paths[0])
