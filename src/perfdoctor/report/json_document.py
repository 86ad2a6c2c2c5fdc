"""Is a file a diagnosis that was written as JSON, and what does it say?"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfdoctor.errors import PerfdoctorError
from perfdoctor.system.run_folder import MANIFEST

if TYPE_CHECKING:
    from perfdoctor.records.document import Document

#: What stands near the beginning of all JSON that is ours.
MARKER = b'"perfdoctor":'
_HEAD = 1024
#: Of a diagnosis in a run folder, and what perfdoctor writes beside it that is no recording.
NAME = "diagnosis.json"
#: What documents have of this version, and of later ones.
BASE = "base_ns"
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

    text = found.read_bytes()
    try:
        document = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, "is damaged or breaks off") from error
    if not isinstance(document, dict) or "time" not in document:
        raise PerfdoctorError(f"{name} is no diagnosis", do="Give a run folder, a recording or a diagnosis.json.")
    if document.get("format") != FORMAT:
        raise PerfdoctorError(f"{name} has a format that is unknown here", do="Install a later version of perfdoctor.")
    if BASE in document:
        typed(name, msgspec.json.decode(text))
    return document


def typed(name: str, document: dict[str, Any]) -> Document:
    """The document, which is changed, as a record. Raises PerfdoctorError where it lacks what a diagnosis has."""
    import msgspec  # noqa: PLC0415

    from perfdoctor.records import document as records  # noqa: PLC0415

    try:
        return msgspec.convert(_with_unknown_numbers(document), records.Document)
    except (AssertionError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise _damaged(name, "is damaged: it lacks what a diagnosis has") from error


def _damaged(name: str, how: str) -> PerfdoctorError:
    return PerfdoctorError(f"{name} {how}", do="Write it again: perfdoctor analyze RECORDING --json FILE")


def _with_unknown_numbers(document: dict[str, Any]) -> dict[str, Any]:
    """The document with NaN and infinity where JSON could only say null."""
    for finding in document["findings"]:
        finding |= {key: _known(finding[key], math.nan) for key in ("values", "evidence")}
    steps = document["run"]["steps"]
    if steps["real_time"] is not None:
        steps["stretch_by_part"] = _known(steps["stretch_by_part"] or {}, math.inf)
    return document


def _known(value: Any, unknown: float) -> Any:
    if isinstance(value, dict):
        return {key: _known(item, unknown) for key, item in value.items()}
    if isinstance(value, list):
        return [_known(item, unknown) for item in value]
    return unknown if value is None else value
