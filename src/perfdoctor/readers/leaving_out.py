"""Which of several files cannot be read? They are named and left out; the others are one job without them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Timeline
from perfdoctor.system.progress import Done, Progress, reading

#: So many files are named in a note; of the others their number is said.
NAMED = 4


def readable(
    files: Sequence[Path], progress: Progress, read: Callable[[Path, Done], Timeline], needed: Collection[Path] = ()
) -> tuple[dict[Path, Timeline], list[str]]:
    """What was read of each file, in their order, and a note where some are left out.

    Raises the PerfdoctorError of a file that is `needed`, and the first one where none of them can be read.
    """
    found: dict[Path, Timeline] = {}
    errors: dict[Path, PerfdoctorError] = {}
    for file, done in reading(files, progress):
        try:
            found[file] = read(file, done)
        except PerfdoctorError as error:  # noqa: PERF203 the others are still read
            errors[file] = error
        except OSError as error:  # it was there a moment ago
            errors[file] = unopened(file, error)
    refused = next((error for file, error in errors.items() if file in needed or not found), None)
    if refused:
        raise refused
    return found, left_out([error.what for error in errors.values()], len(files))


def unopened(file: Path, error: OSError) -> PerfdoctorError:
    """The error of a file that cannot be opened."""
    is_gone = isinstance(error, FileNotFoundError)
    do = "It is a link to a file that does not exist, or was removed." if is_gone else "Check its permissions."
    return PerfdoctorError(f"{file.name} cannot be opened: {error.strerror}", do=do)


def left_out(why: Sequence[str], files: int) -> list[str]:
    """A note on those of so many files that are left out; none where all were read."""
    more = f"; and {len(why) - NAMED} more" if len(why) > NAMED else ""
    were = "was" if len(why) == 1 else "were"
    return [f"{len(why)} of {files} files {were} left out: {'; '.join(why[:NAMED])}{more}."] if why else []
