"""How does a page make a table: which columns and rows does it show, and what are ranks, parts and steps called?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from perfdoctor.metrics.program import basis_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.records.views import Table, TableColumn, Unit
from perfdoctor.vocabulary import places as names
from perfdoctor.vocabulary.parts import IDLE_PARTS, REST, SHOWN_PARTS

#: Numbers that differ by less look the same in three digits, and are described as equal.
ALIKE = 0.005
#: The first characters of a C++ name say what a kernel does; the rest are nested template arguments.
_LONGEST_TEXT = 1_000
#: Further rows took less than a thousandth of the time in every recording examined; and a model has hundreds of layers.
_MOST_ROWS = 500


def text(name: str, values: Iterable[str], explained: str = "") -> TableColumn:
    short = [value if len(value) <= _LONGEST_TEXT else f"{value[: _LONGEST_TEXT - 1]}…" for value in values]
    return TableColumn(name, "text", short, explained)


def numbers(
    name: str, unit: Unit, values: Iterable[float], explained: str = "", *, adds_up: bool = False
) -> TableColumn:
    """`values` may contain NaN, integers UNKNOWN. `adds_up`: is the sum over rows meaningful?"""
    known = np.asarray(values)
    if known.dtype.kind in "iu":
        known = np.where(known == UNKNOWN, np.nan, known.astype(np.float64))
    return TableColumn(name, unit, known.tolist(), explained, adds_up)


def table(
    page: str, id_: str, title: str, explained: str, columns: Sequence[TableColumn], *, most: int = _MOST_ROWS
) -> Iterable[Table]:
    """A table of the first `most` rows, without empty columns; nothing if there are no rows."""
    rows = len(columns[0].values)
    if not rows:
        return
    known = [
        column
        for column in columns
        if any(each if isinstance(each, str) else each is not None and not math.isnan(each) for each in column.values)
    ]
    yield Table(page, id_, title, taken(known, range(min(rows, most))), rows, explained)


def taken(columns: Iterable[TableColumn], rows: Iterable[int]) -> tuple[TableColumn, ...]:
    """The columns with these rows alone, in this order."""
    shown = list(rows)
    return tuple(replace(column, values=[column.values[row] for row in shown]) for column in columns)


def basis(run: Run) -> str:
    """`Numbers are for one step, the mean of 8 ranks.`"""
    ranks = len({place.rank for place in run.places})
    what = basis_of(run).one
    return f"Numbers are for {what}{f', the mean of {ranks} ranks' if ranks > 1 else ''}."


def a_step(run: Run) -> str:
    """The end of a column's heading: without steps, numbers are for all that was recorded."""
    return basis_of(run).short


def of_the_step(run: Run) -> str:
    return f"of {basis_of(run).whole}"


def place_names(places: Sequence[Place]) -> list[str]:
    """`rank 3`, and its device where a rank has several."""
    return names.place_names([(place.rank, place.device) for place in places])


def in_short(part: str) -> str:
    """The short label, for the heading of a column."""
    return f"idle: {SHOWN_PARTS[part].short}" if part in IDLE_PARTS or part == REST else in_words(part)


def in_words(part: str) -> str:
    """The full label of a part, by its key."""
    return SHOWN_PARTS[part].label if part in SHOWN_PARTS else part.replace("_", " ")
