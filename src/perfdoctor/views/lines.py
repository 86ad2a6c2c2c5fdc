"""How are a million points reduced to a line for a screen, and a hundred lines to a readable chart?

Nothing is averaged: each section of a line keeps its lowest and its highest number, so that all peaks remain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.model.columns import Floats, Ints
from perfdoctor.records.views import Series

#: Two points for each column of a wide screen; all lines of a chart share them.
MOST_POINTS = 1500
_FEWEST_POINTS = 200
#: More lines than this cannot be distinguished.
MOST_LINES = 12
#: Of too many lines, this many with the highest and with the lowest means are shown themselves.
_NAMED = 2
_PIECES = 300


def thinned(x: npt.ArrayLike, y: npt.ArrayLike, most: int = MOST_POINTS) -> tuple[Floats, Floats]:
    """At most `most` points of a line, as `extreme_rows` selects them."""
    places, numbers = np.asarray(x, np.float64), np.asarray(y, np.float64)
    rows = extreme_rows(numbers, most)
    return places[rows], numbers[rows]


def extreme_rows(numbers: Floats, most: int) -> Ints:
    """At most this many rows: of each of equally long sections the row with the lowest and with the highest number.

    A section of which nothing is known becomes one row that is NaN. The first and the last row stay.
    """
    if numbers.size <= most:
        return np.arange(numbers.size)
    length = -(-numbers.size // max(most // 2 - 1, 1))
    padding = -numbers.size % length
    runs = np.pad(numbers, (0, padding), constant_values=np.nan).reshape(-1, length)
    unknown, first = np.isnan(runs), np.arange(0, numbers.size, length)
    lowest = first + np.where(unknown, np.inf, runs).argmin(axis=1)
    highest = first + np.where(unknown, -np.inf, runs).argmax(axis=1)
    return np.unique(np.concatenate(([0], lowest, highest, [numbers.size - 1])))


def lines(named: Sequence[tuple[str, npt.ArrayLike, npt.ArrayLike]], kind: str = "line") -> list[Series]:
    """Return all `named` lines if they are few, else the lowest, median and highest of all, and the extreme lines."""
    if len(named) <= MOST_LINES:
        most = max(MOST_POINTS // max(len(named), 1), _FEWEST_POINTS)
        return [_line(name, *thinned(x, y, most), kind) for name, x, y in named]
    means = [float(np.nanmean(each)) if np.isfinite(each).any() else np.nan for each in _numbers(named)]
    order = [int(row) for row in np.argsort(means) if np.isfinite(means[row])]
    shown = dict.fromkeys((*order[-_NAMED:][::-1], *order[:_NAMED]))
    return [
        *_together(named),
        *(_line(named[row][0], *thinned(*named[row][1:], _FEWEST_POINTS), kind) for row in shown),
    ]


def _together(named: Sequence[tuple[str, npt.ArrayLike, npt.ArrayLike]]) -> list[Series]:
    """Lowest, median and highest number of all lines in each of several equal sections of x."""
    x = np.concatenate([np.asarray(places, np.float64) for _, places, _ in named])
    y = np.concatenate(_numbers(named))
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if not x.size:
        return []
    pieces = min(_PIECES, np.unique(x).size)
    edges = np.linspace(x.min(), x.max(), pieces + 1)
    piece = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, pieces - 1)
    order = np.lexsort((y, piece))
    y, piece = y[order], piece[order]
    first = np.flatnonzero(np.diff(piece, prepend=-1))
    count = np.diff(np.append(first, piece.size))
    middle = (y[first + (count - 1) // 2] + y[first + count // 2]) / 2
    at = ((edges[:-1] + edges[1:]) / 2)[piece[first]]
    whole = f"of all {len(named)}"
    return [
        Series(f"highest {whole}", "line", at, y[first + count - 1]),
        Series(f"median {whole}", "line", at, middle),
        Series(f"lowest {whole}", "line", at, y[first]),
    ]


def _numbers(named: Sequence[tuple[str, npt.ArrayLike, npt.ArrayLike]]) -> list[Floats]:
    return [np.asarray(y, np.float64) for _, _, y in named]


def _line(name: str, x: Floats, y: Floats, kind: str) -> Series:
    return Series(name, kind, x, y)  # type: ignore[arg-type]
