"""How is a heat map drawn? As coloured cells, in as many levels as can be distinguished.

All cells of one level are one path, and adjacent ones below each other one stroke of it, as wide as a cell: a thousand
equal ranks take as few bytes as one. A cell shows its number if there is room; the page's table has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from markupsafe import Markup
from msgspec import Struct

from perfdoctor.model.columns import Floats
from perfdoctor.records.views import Heat
from perfdoctor.report.charts import words
from perfdoctor.report.charts.marks import percent
from perfdoctor.report.charts.picture import template
from perfdoctor.report.words.foreign_text import clean_name

LEVELS = 10
#: Two runs of the same training differ by this share: smaller differences between numbers must not look large.
_LEAST_SPAN = 0.05
_HIGHEST_PX, _ROW_PX, _LEAST_ROW_PX = 640.0, 24.0, 1.0
#: Up to these numbers of rows and columns, all are named, cells show their number, and each cell has a tooltip.
_MOST_ROW_NAMES, _MOST_COLUMN_NAMES = 32, 12
_MOST_WRITTEN_COLUMNS, _MOST_WRITTEN_ROWS = 9, 20
_MOST_POINTED_AT = 400
_NAME_LENGTH = 44


class Cell(Struct, frozen=True):
    x: str
    y: str
    width: str
    height: str
    tooltip: str
    number: str


class HeatDrawing(Struct, frozen=True):
    """`levels`: (number, path) of each level; "none" where nothing is known. Paths run down the middle of columns."""

    heat: Heat
    description: str
    height_px: float
    levels: Sequence[tuple[str, str]]
    cells: Sequence[Cell]
    row_names: Sequence[tuple[str, str]]
    column_names: Sequence[tuple[int, str]]
    lowest: str
    highest: str
    is_written: bool


def heat(picture: Heat) -> Markup:
    """The map as a `figure`, its texts escaped."""
    return Markup(template("heat.html.j2").render(d=drawing(picture), LEVELS=LEVELS))  # noqa: S704 escaped by the template


def drawing(picture: Heat) -> HeatDrawing:
    """Everything that the template prints."""
    rows, columns = picture.values.shape
    low, high = span(picture)
    level = level_of(picture.values, low, high)
    is_written = rows <= _MOST_WRITTEN_ROWS and columns <= _MOST_WRITTEN_COLUMNS
    return HeatDrawing(
        heat=picture,
        description=words.description(picture),
        height_px=round(max(min(_ROW_PX, _HIGHEST_PX / max(rows, 1)), _LEAST_ROW_PX) * rows, 1),
        levels=[
            ("none" if number < 0 else str(number), _strokes(level == number)) for number in np.unique(level).tolist()
        ],
        cells=list(_cells(picture)) if rows * columns <= _MOST_POINTED_AT else list(_whole_rows(picture)),
        row_names=[(percent((first + 0.5) / rows), name) for first, _, name in _names(picture.rows, _MOST_ROW_NAMES)],
        column_names=[(count, name) for _, count, name in _names(picture.columns, _MOST_COLUMN_NAMES)],
        lowest=words.said(low, picture.unit),
        highest=words.said(high, picture.unit),
        is_written=is_written,
    )


def span(picture: Heat) -> tuple[float, float]:
    """The numbers of the palest and of the darkest colour. Shares start at 0."""
    known = picture.values[np.isfinite(picture.values)]
    if not known.size:
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    if picture.unit == "share":
        return min(low, 0.0), max(high, 0.0) or (1.0 if low >= 0 else 0.0)
    least = _LEAST_SPAN * max(abs(low), abs(high))
    if not least:  # all of them are 0
        return 0.0, 1.0
    return (min(low, high - least), high) if high > 0 else (low, max(high, low + least))


def level_of(values: Floats, low: float, high: float) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The level of each value: 0 to LEVELS - 1 in equal steps from `low` to `high`; -1 where it is not known."""
    share = (np.nan_to_num(values, nan=low, posinf=high, neginf=low) - low) / (high - low)
    level = np.clip((share * LEVELS).astype(np.int64), 0, LEVELS - 1)
    return np.where(np.isfinite(values), level, -1)


def _strokes(mask: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> str:
    """One stroke for each run of adjacent cells in a column."""
    edge = np.zeros((1, mask.shape[1]), np.int8)
    change = np.diff(np.concatenate((edge, mask.astype(np.int8), edge)), axis=0).T
    starts, ends = np.argwhere(change == 1), np.argwhere(change == -1)
    runs = zip(starts.tolist(), ends.tolist(), strict=True)
    return "".join(f"M{column} {top}v{bottom - top}" for (column, top), (_, bottom) in runs)


def _cells(picture: Heat) -> Iterator[Cell]:
    rows, columns = picture.values.shape
    for row in range(rows):
        for column in range(columns):
            number = words.said(float(picture.values[row, column]), picture.unit)
            tooltip = f"{clean_name(picture.rows[row])}, {clean_name(picture.columns[column])}: {number}"
            yield Cell(percent(column / columns), percent(row / rows), percent(1 / columns), percent(1 / rows), tooltip,
                       number)  # fmt: skip


def _whole_rows(picture: Heat) -> Iterator[Cell]:
    """One tooltip a row of many cells, with its lowest and highest number; none where there are too many rows."""
    rows, columns = picture.values.shape
    if rows > _MOST_POINTED_AT or not columns:
        return
    for row in range(rows):
        known = picture.values[row][np.isfinite(picture.values[row])]
        if known.size:
            low, high = (words.said(float(each), picture.unit) for each in (known.min(), known.max()))
            tooltip = f"{clean_name(picture.rows[row])}: {low} to {high}"
            yield Cell("0", percent(row / rows), "100%", percent(1 / rows), tooltip, "")


def _names(names: Sequence[str], most: int) -> Iterator[tuple[int, int, str]]:
    """At most `most` of the names, evenly spaced: (place, how many rows or columns it stands for, name)."""
    every = -(-len(names) // most) if names else 1
    for first in range(0, len(names), every):
        yield first, min(every, len(names) - first), clean_name(names[first], _NAME_LENGTH)
