"""Where do the project's own files and the public recordings lie?"""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from labels import RECORDINGS

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
EXAMPLES = ROOT / "examples"
NOT_HERE = "the public recordings are not here: set PERFDOCTOR_RECORDINGS to their folder"


def public(name: str = ".") -> Path:
    """Path of this public recording, or of their folder. The test is skipped where they are not on this machine.

    Tests that read them are marked `recordings`, so that those can be run alone.
    """
    if not (RECORDINGS / name).exists():
        pytest.skip(NOT_HERE)
    return RECORDINGS / name


def public_files(pattern: str) -> list[Path]:
    """Public recordings by name, one test each: none where they are not on this machine."""
    return sorted(RECORDINGS.glob(pattern))


def recorded_again(source: Path, target: Path) -> Path:
    """Another recording of the same content, as of another rank: a copy of the file would be left out as one."""
    if source.suffix == ".gz":
        target.write_bytes(gzip.compress(gzip.decompress(source.read_bytes()), mtime=_number_of(target)))
        return target
    shutil.copy(source, target)
    with closing(sqlite3.connect(target)) as database:
        database.execute(f"PRAGMA user_version = {_number_of(target)}")
    return target


def _number_of(path: Path) -> int:
    """A number that another path seldom has."""
    return zlib.crc32(path.as_posix().encode()) >> 1
