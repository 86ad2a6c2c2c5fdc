"""What is done now, and how far is it?

Who works says it to a `Progress`, a text at a time; who shows it (`cli/progress.py`) finds in a `Reached` how much of
it is done, for a bar and the time left.
"""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]
BYTES = "bytes"


class Reached(str):
    """A text that knows how much is done, `done` of `of` in this `unit` (`BYTES`, or a plural noun).

    Two of one work have the same `work`, whatever the text says of the item that is now its turn.
    """

    __slots__ = ("done", "of", "unit", "work")
    done: int
    of: int
    unit: str
    work: str

    def __new__(cls, text: str, work: str, done: int, of: int, unit: str) -> Reached:  # noqa: PYI034 Self is of Python 3.11
        new = super().__new__(cls, text)
        new.done, new.of, new.unit, new.work = done, of, unit, work
        return new


def silent(_: str) -> None:
    """Where nobody wants to know."""
