"""Is a file a diagnosis that was written as JSON, and what does it say?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from perfdoctor.errors import PerfdoctorError
from perfdoctor.system.run_folder import MANIFEST

#: What stands near the beginning of all JSON that is ours.
MARKER = b'"perfdoctor":'
_HEAD = 1024
#: Of a diagnosis in a run folder, and what perfdoctor writes beside it that is no recording.
NAME = "diagnosis.json"
_BESIDE = (NAME, "report.html", MANIFEST)


def file_of(path: Path) -> Path | None:
    """The file of JSON that is ours: this one, or that of a run folder in which the recordings are no more."""
    if path.is_dir() and (path / NAME).is_file():
        # Of a run folder only where its recordings are no more.
        is_alone = all(name in _BESIDE for _, _, names in os.walk(path) for name in names)
        path = path / NAME if is_alone else path
    if path.suffix != ".json" or not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return path if MARKER in head and b'"format"' in head else None


def document(name: str, path: Path) -> dict[str, Any] | None:
    """The document in a file; None where it is no JSON of ours. Raises PerfdoctorError, naming it so, if damaged."""
    if (found := file_of(path)) is None:
        return None
    import msgspec  # noqa: PLC0415 most files are recordings

    from perfdoctor.records.document import FORMAT  # noqa: PLC0415

    try:
        document = msgspec.json.decode(found.read_bytes())
    except msgspec.DecodeError as error:
        raise PerfdoctorError(
            f"{name} is damaged or breaks off", do="Write it again: perfdoctor analyze RECORDING --json FILE"
        ) from error
    if not isinstance(document, dict) or "time" not in document:
        raise PerfdoctorError(f"{name} is no diagnosis", do="Give a run folder, a recording or a diagnosis.json.")
    if document.get("format") != FORMAT:
        raise PerfdoctorError(f"{name} has a format that is unknown here", do="Install a later version of perfdoctor.")
    return document
