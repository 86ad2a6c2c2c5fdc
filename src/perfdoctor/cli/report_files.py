"""Where is a report written, and which files must never be overwritten?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.errors import PerfdoctorError
from perfdoctor.report.json_document import MARKER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perfdoctor.system.remote import RemoteFile

#: Our files begin with these; other files are the user's.
HTML_MARKER = b"<!-- perfdoctor report"
METRICS_MARKER = b"# HELP perfdoctor_"
_HEAD = 1024


def default_html(paths: Sequence[Path | RemoteFile]) -> Path:
    """`report.html` in a run folder that is on this machine, else `<stem>.perfdoctor.html` in the working directory."""
    first = paths[0]
    if not isinstance(first, Path):
        return Path(f"{_stem(first.name) or 'report'}.perfdoctor.html")
    if first.is_dir() and (first / "run.json").is_file() and not _is_fetched(first):
        return first / "report.html"
    name = first.resolve().name if first.is_dir() else _stem(first.name)
    return Path(f"{name or 'report'}.perfdoctor.html")


def _is_fetched(folder: Path) -> bool:
    from perfdoctor.system.remote import is_view

    return is_view(folder)


def _stem(name: str) -> str:
    """`rank0` of `rank0.pt.trace.json.gz`."""
    from perfdoctor.readers import formats

    endings = (".gz", ".pt", *formats.endings())
    while True:
        ending = next((ending for ending in endings if name.lower().endswith(ending) and len(name) > len(ending)), None)
        if ending is None:
            return name
        name = name[: -len(ending)]


def is_input(target: Path, inputs: Sequence[Path | RemoteFile]) -> bool:
    here = [path for path in inputs if isinstance(path, Path)]
    return any(target.exists() and path.exists() and target.samefile(path) for path in here)


def check_json(target: Path, inputs: Sequence[Path]) -> None:
    check_ours("--json", target, MARKER, inputs)


def check_ours(option: str, target: Path, marker: bytes, inputs: Sequence[Path]) -> None:
    """Refuse to overwrite another file, before the analysis. A script needs the name it gave, so no other is chosen."""
    if is_input(target, inputs):
        raise PerfdoctorError(f"{option} {target} is one of the recordings", do="Choose another file.")
    if target.is_file() and not _is_ours(target, marker):
        raise PerfdoctorError(
            f"{option} {target} exists and was not written by perfdoctor", do="Choose another file, or remove it."
        )


def check_metrics(target: Path) -> None:
    """Refuse to overwrite the metrics of another program."""
    if target.is_file() and not _is_ours(target, METRICS_MARKER):
        raise PerfdoctorError(
            f"--metrics {target} exists and was not written by perfdoctor", do="Choose another file, or remove it."
        )


def free_html(target: Path, inputs: Sequence[Path | RemoteFile]) -> Path:
    """The target; `name-2`, `name-3`, … where a file that is not ours has that name."""
    candidate, number = target, 1
    while is_input(candidate, inputs) or (candidate.is_file() and not _is_ours(candidate, HTML_MARKER)):
        number += 1
        candidate = target.with_name(_numbered(target.name, number))
    return candidate


def _numbered(name: str, number: int) -> str:
    ending = next((ending for ending in (".perfdoctor.html", ".html") if name.endswith(ending)), Path(name).suffix)
    return f"{name[: len(name) - len(ending)]}-{number}{ending}"


def is_page(path: Path) -> bool:
    """Did perfdoctor write this page?"""
    return _is_ours(path, HTML_MARKER)


def _is_ours(path: Path, marker: bytes) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return marker in head or not head


def write(target: Path, render: Callable[[], str]) -> None:
    """Write the file whole or not at all. Raises OSError. A device such as /dev/null is written to directly."""
    text = render()
    if target.exists() and not target.is_file():
        target.write_text(text, "utf-8")
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        draft.write_text(text, "utf-8")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
