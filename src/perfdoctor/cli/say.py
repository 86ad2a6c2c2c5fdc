"""How does a line get onto standard output or error? Every command prints here, beside what report modules render.

A name of a file, an argument or a text of a recording may hold anything: escape sequences, line breaks, marks that turn
the writing round, the commands that CI systems read from a log. So a line is one line, and holds what is seen.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence

import typer

from perfdoctor.report.words.foreign_text import csv_cell, message, one_line


def note(text: str) -> None:
    """Print a message of ours on standard error, one line."""
    line(f"perfdoctor: {text}", err=True)


def line(text: str, *, err: bool = False) -> None:
    """Print one line."""
    typer.echo(one_line(text), err=err)


def failure(what: str, do: str) -> None:
    """Print the two lines of an error."""
    typer.echo(message(what, do), err=True)


def document(text: str) -> None:
    """Print what a report module has rendered, in which foreign text is safe for its format already.

    Azure's runner obeys `##vso[` wherever it is: only strings of JSON still hold it, which may write it otherwise.
    """
    typer.echo(text.replace("##vso[", r"\u0023#vso["), nl=False)


def table(rows: Iterable[Sequence[object]], separator: str) -> None:
    """Print rows of cells, one a line. What a spreadsheet or a CI system would obey is no such text any more.

    Between tabs a cell has no quotes around it, and no line breaks and tabs in it.
    """
    if separator == ",":
        csv.writer(sys.stdout, lineterminator="\n").writerows(map(csv_cell, row) for row in rows)
    else:
        for row in rows:
            cells = (csv_cell(" ".join(cell.split("\t")) if isinstance(cell, str) else cell) for cell in row)
            typer.echo(separator.join("" if cell is None else one_line(str(cell)) for cell in cells))


def data(content: bytes) -> None:
    """Print a file's content."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
