"""Which tables are written, and where to? Each file whole or not at all, and none over what is not ours."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.export.tables import database, files
from perfdoctor.export.tables.contents import RecordingTables
from perfdoctor.system.paths import draft
from perfdoctor.vocabulary.spellings import table_hint
from perfdoctor.vocabulary.tables import tables


class Outputs(Struct, frozen=True):
    """What to write: paths, or None. `only`: these tables, () for all."""

    sqlite: Path | None
    parquet: Path | None
    arrow: Path | None
    only: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.targets)

    @property
    def targets(self) -> dict[str, Path]:
        """The paths that are given, by the option that names them."""
        given = {"--sqlite": self.sqlite, "--parquet": self.parquet, "--arrow": self.arrow}
        return {option: path for option, path in given.items() if path is not None}

    def check_asked(self) -> None:
        """Raises UsageError or PerfdoctorError, before anything is read."""
        known = (*tables(), files.ALL_EVENTS) if self.arrow else tuple(tables())
        for name in self.only:
            if name not in known:
                raise UsageError(f"--table {name}: there is no such table", do=table_hint(name, known))
        if self.arrow is not None and len(self.only) > 1:
            raise UsageError("--arrow holds one table", do="Name one --table, or use --parquet or --sqlite.")
        if self.arrow is not None or self.parquet is not None:
            files.check()

    def check_free(self) -> None:
        """Refuse to overwrite what is not ours, before the analysis."""
        for option, target in self.targets.items():
            if _is_in_the_way(option, target):
                raise PerfdoctorError(
                    f"{option} {target} exists"
                    + (" and was not written by perfdoctor export" * (option == "--sqlite")),
                    do="Choose another name, or remove it.",
                )

    def write(self, option: str, contents: RecordingTables) -> None:
        """Write the output of this option. Raises OSError and sqlite3.Error."""
        target, only = self.targets[option], self.only or tuple(tables())
        with draft(target, folder=option == "--parquet") as made:
            if option == "--sqlite":
                database.write(made, contents, {name: tuple(tables()[name].columns) for name in only})
            elif option == "--arrow":
                files.write_arrow(made, contents, self.only[0] if self.only else files.ALL_EVENTS)
            else:
                for name in only:
                    files.write_parquet(made / f"{name}.parquet", contents, name)
            if target.is_dir():
                target.rmdir()  # it is empty


def _is_in_the_way(option: str, target: Path) -> bool:
    """Does something lie there that is not replaced? Our databases are; Parquet and Arrow do not say who wrote them."""
    if not target.exists():
        return False
    if option == "--parquet":
        return not target.is_dir() or any(target.iterdir())
    is_empty = target.is_file() and not target.stat().st_size
    return not is_empty and not (option == "--sqlite" and database.is_exported(target))
