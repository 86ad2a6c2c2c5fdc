"""What is given to `perfdoctor compare`: run folders, recordings or diagnoses, here or elsewhere?"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perfdoctor.cli import scale_options
from perfdoctor.report.json_document import document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perfdoctor.cli.analyze import AnalysisRequest
    from perfdoctor.system.remote import RemoteFile


class Given(Struct, frozen=True):
    """One run, as it was named, without passwords. `paths`: its files or its folder."""

    name: str
    paths: Sequence[Path | RemoteFile]

    @property
    def local(self) -> list[Path]:
        return [path for path in self.paths if isinstance(path, Path)]

    def document(self) -> dict[str, Any] | None:
        """The diagnosis that it is; None where it is anything else."""
        return document(self.name, self.local[0]) if len(self.paths) == len(self.local) == 1 else None


@contextmanager
def at_hand(texts: Sequence[str], asked: AnalysisRequest, *, quiet: bool, verbose: bool) -> Iterator[list[Given]]:
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
