"""A run that was given to be compared: where it is, and whether it is a diagnosis already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perfdoctor.report.json_document import document

if TYPE_CHECKING:
    from perfdoctor.system.remote import RemoteFile


class Given(Struct, frozen=True):
    """One run to compare, by the `name` that it was given, without passwords. `paths`: its files or its folder."""

    name: str
    paths: Sequence[Path | RemoteFile]

    @property
    def local(self) -> list[Path]:
        return [path for path in self.paths if isinstance(path, Path)]

    def document(self) -> dict[str, Any] | None:
        """The diagnosis.json that it is; None where it is anything else."""
        return document(self.name, self.local[0]) if len(self.paths) == len(self.local) == 1 else None
