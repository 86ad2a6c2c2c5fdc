"""What is done now, and how far is it?

Who works says it to a `Progress`, a text at a time; who shows it (`cli/progress.py`) finds in a `ProgressText` how
much of it is done, for a bar and the time left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

Progress = Callable[[str], None]
#: Called with how many bytes of a file have been read.
Done = Callable[[int], None]
BYTES = "bytes"


class ProgressText(str):
    """A text that knows how much is done, `done` of `of` in this `unit` (`BYTES`, or a plural noun).

    Two of one work have the same `work`, whatever the text says of the item that is now its turn.
    """

    __slots__ = ("done", "of", "unit", "work")
    done: int
    of: int
    unit: str
    work: str

    def __new__(cls, text: str, work: str, done: int, of: int, unit: str) -> ProgressText:  # noqa: PYI034 Self is of Python 3.11
        new = super().__new__(cls, text)
        new.done, new.of, new.unit, new.work = done, of, unit, work
        return new


def silent(_: str) -> None:
    """Where nobody wants to know."""


def unheard(_: int) -> None:
    """Where nobody wants to know how much of a file has been read."""


def rising(done: Done) -> Done:
    """The same, without what is less than was said before: of a file that is read by several, or in places twice."""
    most = -1

    def more(count: int) -> None:
        nonlocal most
        if count > most:
            most = count
            done(count)

    return more


def reading(files: Sequence[Path], progress: Progress) -> Iterator[tuple[Path, Done]]:
    """Each file when it is its turn, and whom to call while it is read: all their bytes are one work."""
    sizes = [_size(file) for file in files]
    for number, file in enumerate(files):
        counted = f" ({number + 1} of {len(files)})" if len(files) > 1 else ""
        text, before = f"Reading {file.name}{counted}", sum(sizes[:number])

        def done(count: int, text: str = text, before: int = before) -> None:
            progress(ProgressText(text, "Reading", before + count, sum(sizes), BYTES))

        done(0)
        yield file, done


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # whoever reads it says so
        return 0
