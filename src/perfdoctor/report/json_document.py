"""Is a file a diagnosis that was written as JSON, and what does it say?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfdoctor.errors import PerfdoctorError

#: What stands near the beginning of all JSON that is ours.
MARKER = b'"perfdoctor":'
_HEAD = 1024


def document(name: str, path: Path) -> dict[str, Any] | None:
    """None where it is anything else. Raises PerfdoctorError where it is ours, and cannot be read: it has this name."""
    import msgspec  # noqa: PLC0415 most files are recordings

    from perfdoctor.report.json_report import FORMAT  # noqa: PLC0415

    if not path.is_file() or path.suffix != ".json":
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if MARKER not in head or b'"format"' not in head:
        return None
    try:
        document = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise PerfdoctorError(
            f"{name} is damaged or breaks off", do="Write it again: perfdoctor analyze RECORDING --json FILE"
        ) from error
    if not isinstance(document, dict) or "time" not in document:
        raise PerfdoctorError(f"{name} is no diagnosis", do="Give a run folder, a recording or a diagnosis.json.")
    if document.get("format") != FORMAT:
        raise PerfdoctorError(f"{name} has a format that is unknown here", do="Install a later version of perfdoctor.")
    return document
