"""What does a TOML file say? Those that come with the program are parsed once for each user.

Parsing all rules takes 30 ms, reading the parsed tables from one binary file 1 ms.
"""

from __future__ import annotations

import contextlib
import marshal
import sys
import zlib
from pathlib import Path
from typing import Any

from perfdoctor import __version__
from perfdoctor.system.paths import cache_folder, write_whole

Table = dict[str, Any]


def parsed(text: str) -> Table:
    """The table in a TOML text. Raises ValueError where the text is no TOML."""
    # Loaded here, since most runs parse nothing.
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415
    else:
        import tomli as tomllib  # noqa: PLC0415
    try:
        table: Table = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deep") from error
    return table


def shipped_table(path: Path) -> Table:
    """The table in one file that comes with the program."""
    files = ShippedTables(path.stem)
    table = files.read(path)
    files.keep()
    return table


class ShippedTables:
    """Tables of files that come with the program, kept by the files' texts in one file of the user's cache.

    Where that file cannot be read or written, the texts are parsed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._kept = self._read()
        self._used: dict[bytes, Table] = {}

    def read(self, path: Path) -> Table:
        """The table in this file. Raises ValueError where it is no TOML, or not in UTF-8."""
        text = path.read_bytes()
        table = self._kept.get(text)
        self._used[text] = parsed(text.decode()) if table is None else table
        return self._used[text]

    def keep(self) -> None:
        """Keep the tables that were read, and no others, for the next time."""
        if self._used.keys() == self._kept.keys():
            return
        with contextlib.suppress(OSError, RuntimeError):
            target = self._file()
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            kept = marshal.dumps(self._used)
            write_whole(target, _checksum(kept) + kept)

    def _read(self) -> dict[bytes, Table]:
        try:
            content = self._file().read_bytes()
        except (OSError, RuntimeError):
            return {}
        kept = content[4:]
        return marshal.loads(kept) if content[:4] == _checksum(kept) else {}  # noqa: S302 (the user's own, as .pyc files)

    def _file(self) -> Path:
        return cache_folder() / "tables" / f"{__version__}-{sys.implementation.cache_tag}" / f"{self._name}.bin"


def _checksum(kept: bytes) -> bytes:
    """The checksum of what is kept: `marshal` may read a damaged file as something else."""
    return zlib.crc32(kept).to_bytes(4, "little")


def shipped_folder(name: str) -> Path:
    """The folder of `rules`, `examples` or `docs`: inside an installed wheel, else beside `src/` in a checkout."""
    inside = Path(__file__).parents[1] / name
    return inside if inside.is_dir() else Path(__file__).parents[3] / name
