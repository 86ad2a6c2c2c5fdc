"""Which options of `perfdoctor export` write tables, and where to?"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from perfdoctor.cli import report_files, say
from perfdoctor.cli.progress import progress
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.system.paths import draft

if TYPE_CHECKING:
    from perfdoctor.diagnosis.records import Examination
    from perfdoctor.system.remote import RemoteFile

_SQLITE = b"SQLite format 3\x00"
_APPLICATION_ID, _HEAD = slice(68, 72), 100
_CHOOSE = "Choose a place that you may write to, with room for it."


def is_exported(path: Path) -> bool:
    """Is it a database that `perfdoctor export --sqlite` wrote?"""
    from perfdoctor.export.tables.database import APPLICATION_ID

    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return head.startswith(_SQLITE) and int.from_bytes(head[_APPLICATION_ID], "big") == APPLICATION_ID


class Outputs(Struct, frozen=True):
    """What to write: paths, or None. `only`: these tables, () for all."""

    sqlite: Path | None
    parquet: Path | None
    arrow: Path | None
    only: tuple[str, ...]

    def __bool__(self) -> bool:
        return any(path is not None for path in (self.sqlite, self.parquet, self.arrow))

    def check_asked(self) -> None:
        """Raises UsageError or PerfdoctorError, before anything is read."""
        if not self and not self.only:
            return
        from perfdoctor.vocabulary.tables import tables

        known = (*tables(), "events") if self.arrow else tuple(tables())
        for name in self.only:
            if name not in known:
                raise UsageError(f"--table {name}: there is no such table", do=f"Tables: {', '.join(known)}.")
        if self.arrow is not None and len(self.only) > 1:
            raise UsageError("--arrow holds one table", do="Name one --table, or use --parquet or --sqlite.")
        if self.arrow is not None or self.parquet is not None:
            from perfdoctor.export.tables import files

            files.check()

    def check_files(self, inputs: Sequence[Path | RemoteFile]) -> None:
        """Refuse to overwrite what is not ours, before the analysis."""
        for option, target in (("--sqlite", self.sqlite), ("--parquet", self.parquet), ("--arrow", self.arrow)):
            if target is None:
                continue
            if report_files.is_input(target, inputs):
                raise PerfdoctorError(f"{option} {target} is one of the recordings", do="Choose another name.")
            if _is_in_the_way(option, target):
                raise PerfdoctorError(
                    f"{option} {target} exists"
                    + (" and was not written by perfdoctor export" * (option == "--sqlite")),
                    do="Choose another name, or remove it.",
                )


def _is_in_the_way(option: str, target: Path) -> bool:
    """Does something lie there that is not replaced? Our databases are; Parquet and Arrow do not say who wrote them."""
    if not target.exists():
        return False
    if option == "--parquet":
        return not target.is_dir() or any(target.iterdir())
    is_empty = target.is_file() and not target.stat().st_size
    return not is_empty and not (option == "--sqlite" and is_exported(target))


def export(examination: Examination, outputs: Outputs, *, quiet: bool, verbose: bool) -> None:
    """Write the outputs, each whole or not at all. Raises PerfdoctorError for the first that cannot be written."""
    from perfdoctor.export.tables import database, files
    from perfdoctor.export.tables.contents import RecordingTables
    from perfdoctor.vocabulary.tables import tables

    contents = RecordingTables(examination.run, lambda: examination.diagnosis)
    only = outputs.only or tuple(tables())

    def parquet(folder: Path) -> None:
        for name in only:
            files.write_parquet(folder / f"{name}.parquet", contents, name)

    def sqlite(file: Path) -> None:
        database.write(file, contents, {name: tuple(tables()[name].columns) for name in only})

    def arrow(file: Path) -> None:
        files.write_arrow(file, contents, outputs.only[0] if outputs.only else files.ALL_EVENTS)

    for option, target, write in (
        ("--sqlite", outputs.sqlite, sqlite),
        ("--parquet", outputs.parquet, parquet),
        ("--arrow", outputs.arrow, arrow),
    ):
        if target is not None:
            with progress(quiet=quiet, verbose=verbose) as update:
                update(f"Writing {target.name}")
                try:
                    with draft(target, folder=option == "--parquet") as made:
                        write(made)
                        if target.is_dir():
                            target.rmdir()  # it is empty
                except (OSError, sqlite3.Error) as error:
                    raise report_files.unwritable(f"{option} {target}", error, _CHOOSE) from error
            if not quiet:
                say.line(f"Wrote {target}.", err=True)
