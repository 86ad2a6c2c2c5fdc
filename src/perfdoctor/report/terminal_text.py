"""How does text fit into a terminal of any width, with numbers next to their units and columns aligned?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from perfdoctor.patterns import regex

#: Longer lines are hard to read, even where the terminal is wider.
WIDEST = 100
_NARROWEST = 20
#: A character of the private use area, for a space at which no line may break.
_GLUE = "\ue000"
_UNITS = r"ns|µs|ms|s|[KMGTP]i?B|kB|B|[kKMGTP]?B/s|[kMGTPEZ]?FLOP(?:/s)?"
_BEFORE_UNIT = regex(rf"(?<=\d) (?=%|(?:{_UNITS})(?![\w/]))")


class Terminal(Console):
    """Standard output or error. A closed pipe raises BrokenPipeError, as in the rest of the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show(lines: Iterable[Text], console: Console) -> None:
    """Print lines that are wrapped already, as they are."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)


def wrapped(text: Text, console: Console, width: int, indent: str = "", first: str | None = None) -> Iterator[Text]:
    """The text in lines of at most `width` cells, each after `indent`, the first after `first`."""
    glued = text.copy()
    glued.plain = _BEFORE_UNIT.sub(_GLUE, text.plain.replace(_GLUE, " "))
    for place, line in enumerate(glued.wrap(console, max(width - len(indent), _NARROWEST))):
        line.rstrip()
        line.plain = line.plain.replace(_GLUE, " ")
        yield Text(first if first is not None and place == 0 else indent) + line


def packed(pieces: Sequence[str], width: int) -> Iterator[str]:
    """The pieces, separated by dots, in lines that break only between them; a piece that is too long stays whole."""
    line = ""
    for piece in pieces:
        longer = f"{line} · {piece}" if line else piece
        if line and len(longer) > width:
            yield line
            longer = piece
        line = longer
    if line:
        yield line


def columns(rows: Sequence[Sequence[Text]], *, words: Sequence[int]) -> Iterator[Text]:
    """Aligned columns, two spaces apart: those numbered in `words` to the left, all others to the right."""
    widths = _widths(rows)
    for row in rows:
        line = Text()
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            gap = " " * (width - cell.cell_len)
            line += Text("  " if place else "") + (cell + Text(gap) if place in words else Text(gap) + cell)
        line.rstrip()
        yield line


def width_of(rows: Sequence[Sequence[Text]]) -> int:
    """How many cells wide `columns` makes them."""
    widths = _widths(rows)
    return sum(widths) + 2 * (len(widths) - 1)


def _widths(rows: Sequence[Sequence[Text]]) -> list[int]:
    return [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
