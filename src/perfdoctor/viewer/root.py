"""How is a file below a folder opened, and nothing outside of it?

Every component of the path is opened for itself, from the folder down, and none may be a link: that holds also against
someone who swaps a folder for a link between the check and the reading.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from perfdoctor.errors import PerfdoctorError

#: Folders whose files are nobody's reports.
_LEFT_OUT = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)


class ViewedFolder:
    """A folder. `path`: as it was given, and where it really is."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise PerfdoctorError(f"{folder} is no folder", do="Give the folder in which reports or runs lie.")
        self.given, self.path = folder, folder.resolve()

    def files(self, most: int) -> Iterator[PurePosixPath]:
        """The regular files below it, at most so many; no links, no hidden ones, no folders of tools."""
        left = most
        for here, folders, names in os.walk(self.path):
            folders[:] = sorted(each for each in folders if each[0] != "." and each not in _LEFT_OUT)
            inside = Path(here).relative_to(self.path)
            for name in sorted(names):
                left -= 1
                if left < 0:
                    return
                if name[0] != "." and not Path(here, name).is_symlink():
                    yield PurePosixPath(inside.as_posix()) / name

    def open(self, file: PurePosixPath) -> BinaryIO:
        """A regular file below the folder. Raises OSError where there is none, or any part of its path is a link."""
        if file.is_absolute() or ".." in file.parts or not file.parts:
            raise FileNotFoundError(file)
        if os.open not in os.supports_dir_fd:
            return self._resolved(file)
        at = os.open(self.path, os.O_RDONLY | _FOLDER)
        try:
            for part in file.parts[:-1]:
                inner = os.open(part, os.O_RDONLY | _FOLDER | _NO_LINK, dir_fd=at)
                os.close(at)
                at = inner
            # A pipe of that name would be waited for.
            found = os.open(file.parts[-1], os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0), dir_fd=at)
        finally:
            os.close(at)
        if not stat.S_ISREG(os.fstat(found).st_mode):
            os.close(found)
            raise FileNotFoundError(file)
        return os.fdopen(found, "rb")

    def _resolved(self, file: PurePosixPath) -> BinaryIO:
        path = self.path / file
        if path.resolve() != path or not path.is_file():
            raise FileNotFoundError(file)
        return path.open("rb")
