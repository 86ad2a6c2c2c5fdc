"""How do numbers become marks? As SVG paths of integers in a viewBox that scales to the plot's size.

Paths are relative from point to point, which is short. Coordinates are rounded first, so that errors do not add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.model.columns import Floats, Mask
from perfdoctor.records.views import Series
from perfdoctor.report.charts.axes import Scale

#: The viewBox of paths: a unit is a quarter of a pixel on a wide screen.
WIDTH, HEIGHT = 4000, 2000
#: A bar's width as a share of the distance between bars.
_BAR_SHARE = 0.8
#: The height of one kind of spans, at the top of the plot, as a share of the plot's height.
LANE = 0.04
_SMALLEST_DOT_PX, _LARGEST_DOT_PX, _DOT_PX = 3.5, 12.0, 5.0


class PlotArea(Struct, frozen=True):
    """Both axes of a plot."""

    x: Scale
    y: Scale

    def columns(self, x: Floats) -> Floats:
        """Places from left to right in the viewBox; NaN where there is none."""
        return self.x.at(x) * WIDTH

    def rows(self, y: Floats) -> Floats:
        """Places from the top down in the viewBox."""
        return (1 - self.y.at(y)) * HEIGHT


def line(series: Series, frame: PlotArea, *, in_steps: bool = False) -> str:
    """The path through all points in their order, interrupted where one is unknown."""
    x, y = frame.columns(series.x), frame.rows(series.y)
    known = np.isfinite(x) & np.isfinite(y)
    return "".join(_run(x[rows], y[rows], in_steps) for rows in _runs(known))


def between(x: Floats, low: Floats, high: Floats, frame: PlotArea) -> str:
    """The area between two lines over the same x, interrupted where one is unknown."""
    at, bottom, top = frame.columns(x), frame.rows(low), frame.rows(high)
    known = np.isfinite(at) & np.isfinite(bottom) & np.isfinite(top)
    pieces = (
        _run(np.concatenate((at[rows], at[rows][::-1])), np.concatenate((top[rows], bottom[rows][::-1])), False) + "z"
        for rows in _runs(known)
    )
    return "".join(pieces)


def bars(x: Floats, low: Floats, high: Floats, width: float, frame: PlotArea) -> str:
    """One box for each x of which both ends are known; `width` is in the unit of x."""
    left, right = np.rint(frame.columns(x - width / 2)), np.rint(frame.columns(x + width / 2))
    top, bottom = np.rint(frame.rows(high)), np.rint(frame.rows(low))
    shown = np.isfinite(left) & np.isfinite(top) & np.isfinite(bottom) & (bottom != top)
    corners = zip(*(each[shown].astype(np.int64).tolist() for each in (left, top, right, bottom)), strict=True)
    return "".join(f"M{x0} {y0}H{max(x1, x0 + 1)}V{y1}H{x0}z" for x0, y0, x1, y1 in corners)


def stacked(series: Sequence[Series]) -> list[tuple[Series, Floats, Floats]]:
    """Each series with its lower and upper edge. All have the same x; unknown values count as 0."""
    found: list[tuple[Series, Floats, Floats]] = []
    for each in series:
        low = found[-1][2] if found and found[-1][2].size == each.y.size else np.zeros(each.y.size)
        found.append((each, low, low + np.nan_to_num(each.y)))
    return found


def bar_width(series: Sequence[Series]) -> float:
    """Width of a bar in the unit of x: `_BAR_SHARE` of the smallest distance between two bars."""
    places = np.unique(np.concatenate([each.x for each in series])) if series else np.empty(0)
    gaps = np.diff(places[np.isfinite(places)])
    return _BAR_SHARE * float(gaps.min() if gaps.size else 1.0)


def dot_sizes(series: Series) -> list[float]:
    """Radii in pixels: the area is proportional to the weight."""
    if series.weight.size != series.x.size:
        return [_DOT_PX] * int(series.x.size)
    share = np.clip(np.nan_to_num(series.weight), 0, 1)
    radii: list[float] = np.maximum(_LARGEST_DOT_PX * np.sqrt(share), _SMALLEST_DOT_PX).round(1).tolist()
    return radii


def percent(share: float) -> str:
    """A place in percent for SVG, precise to a tenth of a pixel."""
    return f"{share * 100:.2f}".rstrip("0").rstrip(".") + "%"


def _runs(known: Mask) -> Iterator[slice]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], known.astype(np.int8), [0]))))
    return (slice(int(first), int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True))


def _run(x: Floats, y: Floats, in_steps: bool) -> str:
    across, down = np.rint(x).astype(np.int64), np.rint(y).astype(np.int64)
    if in_steps:
        moves = zip(np.diff(across).tolist(), np.diff(down).tolist(), strict=True)
        path = "".join((f"h{right}" if right else "") + (f"v{fall}" if fall else "") for right, fall in moves)
    else:
        steps = np.stack((np.diff(across), np.diff(down)), axis=1)
        moved = steps[(steps != 0).any(axis=1)].tolist()
        path = ("l" + "".join(_pair(*step) for step in moved).lstrip(" ")) if moved else ""
    alone = "" if path else "h0"  # with round line ends, this is a dot
    return f"M{across[0]} {down[0]}{path}{alone}"


def _pair(right: int, fall: int) -> str:
    return f"{'' if right < 0 else ' '}{right}{'' if fall < 0 else ' '}{fall}"
