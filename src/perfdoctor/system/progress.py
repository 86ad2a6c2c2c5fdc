"""What is done now, and how far is it?

Whoever works calls a `Progress` with one text after the other. `cli/progress.py` shows them: a `ProgressText` says how
much is done, for a bar and the time left.
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

    Texts with the same `work` are of one work, and move one bar.
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
    """Show no progress."""


def unheard(_: int) -> None:
    """Do not report how many bytes of a file have been read."""


def rising(done: Done) -> Done:
    """`done` that is called with rising counts only, for a file that is read by several, or in places twice."""
    most = -1

    def more(count: int) -> None:
        nonlocal most
        if count > most:
            most = count
            done(count)

    return more


def reading(files: Sequence[Path], progress: Progress) -> Iterator[tuple[Path, Done]]:
    """Yield each file when it is to be read, and the function that reports its bytes to `progress` meanwhile."""
    sizes = []
    for file in files:
        try:
            sizes.append(file.stat().st_size)
        except OSError:  # noqa: PERF203 whoever reads it says so
            sizes.append(0)
    for number, file in enumerate(files):
        counted = f" ({number + 1} of {len(files)})" if len(files) > 1 else ""
        text, before = f"Reading {file.name}{counted}", sum(sizes[:number])

        def done(count: int, text: str = text, before: int = before) -> None:
            progress(ProgressText(text, "Reading", before + count, sum(sizes), BYTES))

        done(0)
        yield file, done
