"""Which files may an assistant name? Those below one folder, wherever links lead, and nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.system.run_folder import RunFolder

#: A folder of more entries is no recording: to look through it takes too long.
MOST_ENTRIES = 200_000
_BELOW = "Name a file or a folder below the server's root, relative to it; recordings lists what is there."


class AllowedRoot(Struct, frozen=True):
    """`folder`: resolved. `remote`: beginnings of addresses that may be read as well, each ending with a slash."""

    folder: Path
    remote: tuple[str, ...] = ()

    @classmethod
    def at(cls, folder: Path, remote: tuple[str, ...] = ()) -> AllowedRoot:
        """Raises UsageError where there is no such folder, or an address is none."""
        if not folder.is_dir():
            raise UsageError(f"--root {folder}: there is no such folder", do="Name the folder of your recordings.")
        for each in remote:
            if "://" not in each:
                raise UsageError(
                    f"--allow-remote {each}: that is no address", do="Use s3://BUCKET/FOLDER/ or the like."
                )
        return cls(folder.resolve(), tuple(each.rstrip("/") + "/" for each in remote))

    def address(self, text: str) -> str | None:
        """The text where it is an address that may be read; None for a path. Raises PerfdoctorError for others."""
        if "://" not in text:
            return None
        plain = not any(mark in text for mark in ("..", "\\", "%", "*", "?", "[", "@", "\0", "\n"))
        if plain and any(f"{text}/".startswith(allowed) for allowed in self.remote):
            return text
        raise PerfdoctorError(
            "that address may not be read",
            do="Start the server with --allow-remote ADDRESS, or name a file below its root.",
        )

    def inside(self, text: str) -> Path:
        """Where a file or folder really is. Raises PerfdoctorError for what is not there, or not below the root.

        The same is said of both: an assistant does not learn what is elsewhere.
        """
        try:
            found = Path(os.path.realpath(self.folder / text))
            is_there = "\0" not in text and self._holds(found) and found.exists()
        except (OSError, ValueError):  # too long, a null byte, a loop of links
            is_there = False
        if not is_there:
            raise PerfdoctorError("there is no such file or folder below the server's root", do=_BELOW)
        mode = found.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise PerfdoctorError("that is neither a file nor a folder", do=_BELOW)
        return found

    def recording(self, text: str) -> Path:
        """The real path of a recording that is read as a whole: nothing in it or beside it may lead out of the root."""
        found = self.inside(text)
        for link in self._links(found):
            if not self._holds(Path(os.path.realpath(link))):
                raise PerfdoctorError(
                    f"{self.name(link)} is a link that leads out of the server's root",
                    do="Put the recording itself below the root, or start the server with a root that holds both.",
                )
        if found.is_dir():
            self._check_manifest(found)
        return found

    def name(self, path: Path) -> str:
        """The path as answers name it."""
        return path.relative_to(self.folder).as_posix() if path.is_relative_to(self.folder) else path.name

    def _holds(self, path: Path) -> bool:
        return path == self.folder or path.is_relative_to(self.folder)

    def _links(self, found: Path) -> Iterator[Path]:
        """Every link in a folder; of a file those beside it that readers may take for its other half."""
        if not found.is_dir():
            stem = found.name.partition(".")[0]
            with os.scandir(found.parent) as entries:
                yield from (Path(each.path) for each in entries if each.name.startswith(stem) and each.is_symlink())
            return
        seen = 0
        for folder, folders, files in os.walk(found, followlinks=False):
            seen += len(folders) + len(files)
            if seen > MOST_ENTRIES:
                raise PerfdoctorError(
                    f"the folder has more than {MOST_ENTRIES:,} entries", do="Name the recording's own folder."
                )
            yield from (link for name in (*folders, *files) if (link := Path(folder, name)).is_symlink())

    def _check_manifest(self, folder: Path) -> None:
        """A manifest is a stranger's as well: what it names lies in its own folder."""
        run = RunFolder.open(folder)
        for record in run.manifest.passes if run else ():
            for named in (record.name, *(record.files if isinstance(record.files, list) else ())):
                parts = Path(named).parts if isinstance(named, str) else ("..",)
                if "\0" in str(named) or ".." in parts or Path(*parts).is_absolute():
                    raise PerfdoctorError(
                        f"the manifest of {self.name(folder)} names files outside of it", do="Record the run again."
                    )
