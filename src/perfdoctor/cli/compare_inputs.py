"""What is given to `perfdoctor compare`: run folders, recordings or diagnoses, here or elsewhere?"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfdoctor.cli import report_files, scale_options
from perfdoctor.errors import PerfdoctorError
from perfdoctor.late import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perfdoctor.cli.analyze import Asked
    from perfdoctor.system.remote import RemoteFile

_HEAD = 1024


@dataclass(frozen=True)
class Given:
    """One run, as it was named, without passwords. `paths`: its files or its folder."""

    name: str
    paths: Sequence[Path | RemoteFile]

    @property
    def local(self) -> list[Path]:
        return [path for path in self.paths if isinstance(path, Path)]

    def document(self) -> dict[str, Any] | None:
        """The diagnosis that it is; None where it is anything else."""
        return _document(self.name, self.local[0]) if len(self.paths) == len(self.local) == 1 else None


@contextmanager
def at_hand(texts: Sequence[str], asked: Asked, *, quiet: bool, verbose: bool) -> Iterator[list[Given]]:
    """Each run's files, fetched where they lie elsewhere."""
    with ExitStack() as stack:
        yield [
            Given(_name(text), stack.enter_context(
                scale_options.at_hand([text], asked.cluster, quiet=quiet, verbose=verbose)
            ))
            for text in texts
        ]  # fmt: skip


def _name(text: str) -> str:
    if "://" not in text:
        return text
    from perfdoctor.system.remote import shown

    return shown(text)


def _document(name: str, path: Path) -> dict[str, Any] | None:
    import msgspec

    from perfdoctor.report.json_report import FORMAT

    if not path.is_file() or path.suffix != ".json":
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if report_files.JSON_MARKER not in head or b'"format"' not in head:
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
