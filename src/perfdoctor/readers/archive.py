"""Which recordings does a zip archive hold, as `nsys-jax` writes them? They are unpacked for as long as they are read.

An archive of nsys-jax holds the .nsys-rep beside much that describes the compiled program: sources, protocol buffers,
and Parquet files of nsys's recipes, which are results and not the recording.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from zipfile import ZipInfo

MAGIC = b"PK\x03\x04"
#: What is unpacked is at most so many times as large as the archive. Traces become 30 times smaller, reports 5 times.
_MOST_RATIO = 200
_FREE_BYTES = 1 << 30


def holds(file: Path, endings: Sequence[str]) -> bool:
    """Has the archive a member whose path ends with one of `endings`? False also where it cannot be read."""
    try:
        return bool(_wanted(file, endings))
    except (OSError, PerfdoctorError):
        return False


@contextlib.contextmanager
def unpacked(file: Path, endings: Sequence[str]) -> Iterator[Path]:
    """A folder with the members whose paths end with `endings`, until the context is left. Raises PerfdoctorError.

    Of an ending that begins with `/` all files of the same kind in the member's folder are unpacked.
    """
    import zipfile  # noqa: PLC0415 few recordings are packed

    wanted = _wanted(file, endings)
    most_bytes = _FREE_BYTES + _MOST_RATIO * file.stat().st_size
    if sum(member.file_size for member in wanted) > most_bytes:
        raise PerfdoctorError(
            f"{file.name} would take more than {most_bytes / 1e9:.0f} GB when it is unpacked",
            do="Unpack it yourself, and pass the recording in it.",
        )
    with tempfile.TemporaryDirectory(prefix="perfdoctor-") as scratch:
        folder = Path(scratch) / file.stem
        try:
            with zipfile.ZipFile(file) as archive:
                for member in wanted:  # zipfile keeps a member within the folder and within its declared size
                    archive.extract(member, folder)
        except Exception as error:
            raise _damaged(file, error) from error
        yield folder


def refusal(file: Path) -> PerfdoctorError:
    """Why an archive that holds no recording cannot be read."""
    try:
        _wanted(file, ())
    except PerfdoctorError as error:
        return error
    return PerfdoctorError(f"{file.name} is a zip archive without a recording in it", do="Pass a recording itself.")


def _wanted(file: Path, endings: Sequence[str]) -> list[ZipInfo]:
    import zipfile  # noqa: PLC0415

    try:
        with zipfile.ZipFile(file) as archive:
            # `is_dir` asks for the last character of a name, which in a damaged file may have none
            members = [each for each in archive.infolist() if each.filename and not each.is_dir()]
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise _damaged(file, error) from error
    folders = tuple(ending for ending in endings if ending.startswith("/"))
    whole = {_place(each) for each in members if f"/{each.filename}".endswith(folders)}
    return [each for each in members if f"/{each.filename}".endswith(tuple(endings)) or _place(each) in whole]


def _place(member: ZipInfo) -> tuple[PurePosixPath, str]:
    path = PurePosixPath(member.filename)
    return path.parent, path.suffix


def _damaged(file: Path, error: Exception) -> PerfdoctorError:
    return PerfdoctorError(
        f"{file.name} cannot be unpacked ({error})", do="Copy the file again, or unpack it yourself."
    )
