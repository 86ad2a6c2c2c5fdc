"""How do a million numbers become a line that a screen can show, and a hundred lines a picture that can be read?

Nothing is averaged away: of each piece of a line its lowest and its highest number stay, so every peak is there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.model.columns import Floats, Ints
from perfdoctor.records.views import Series

#: A wide screen has no more places beside each other, two numbers a place; all lines of a chart share them.
MOST_POINTS = 1500
_FEWEST_POINTS = 200
#: More lines than this cannot be told apart.
MOST_LINES = 12
#: Of too many lines, so many are shown themselves: those that are highest and lowest on the whole.
_NAMED = 2
_PIECES = 300


def thinned(x: npt.ArrayLike, y: npt.ArrayLike, most: int = MOST_POINTS) -> tuple[Floats, Floats]:
    """At most so many of the points of a line, as `telling_rows` picks them."""
    places, numbers = np.asarray(x, np.float64), np.asarray(y, np.float64)
    rows = telling_rows(numbers, most)
    return places[rows], numbers[rows]


def telling_rows(numbers: Floats, most: int) -> Ints:
    """At most so many rows: of each of equally long runs of them that with the lowest and that with the highest number.

    A run of which nothing is known stays as one row that is NaN. The first and the last stay.
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
    """One line each while they can be told apart; else the lowest, median and highest of all, and the extreme ones."""
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
    """In each of evenly long pieces of x: the lowest, the median and the highest number that any line has there."""
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
