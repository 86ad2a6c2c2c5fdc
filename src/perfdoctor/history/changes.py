"""Where does the level of a series change?

Kernel change point detection (S. Arlot, A. Celisse, Z. Harchaoui, Journal of Machine Learning Research 20, 2019), by
the library ruptures: the series is cut where the distributions of its pieces differ most; each cut costs a penalty. The
kernel is bounded, so that single slow runs move nothing, and its width is the median distance of two runs, so that no
unit and no size of the noise is assumed. Why this one: docs/decisions/2026-11-23-change-points.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from perfdoctor.errors import PerfdoctorError

#: Runs on each side of a change: of fewer nobody knows whether they are slow or were disturbed.
LEAST_RUNS = 3
#: A cut has to explain this much, times the logarithm of the number of runs: see the decision for its figures.
_PENALTY = 1.0
#: Levels that differ by less are not worth a commit to look for: steps of one program differ by that from run to run.
LEAST_CHANGE = 0.01
#: A line that fits so much better than two levels is no step: its distances are this share of theirs or less.
_GRADUAL = 0.8
#: The two-sided quantile of Kendall's test at 1 %; and a drift jumps less than half of the way that the level moves.
_TREND, _BEGINS = 2.576, 0.5
EXTRA = "perfdoctor[trend]"


class LevelShift(Struct, frozen=True):
    """The run at this position is the first of the new level. `kind`: gradual where no single run made it."""

    at: int
    before: float
    after: float
    kind: Literal["step", "gradual"]

    @property
    def ratio(self) -> float:
        return self.after / self.before if self.before else float("inf")


class MissingLibraryError(PerfdoctorError):
    """The library is an extra: scipy, which it needs, is as large as all that perfdoctor requires."""

    def __init__(self) -> None:
        super().__init__("change points were not looked for: ruptures is not installed", do=f"pip install '{EXTRA}'")


def change_points(values: Sequence[float]) -> tuple[LevelShift, ...]:
    """All changes of the level, oldest first. Levels are medians. Raises MissingLibraryError."""
    series = np.asarray(values, dtype=np.float64)
    if series.size < 2 * LEAST_RUNS or not series.any() or np.ptp(series) == 0:
        return ()
    cuts = _cuts(series)
    while cuts:
        bounds = [0, *cuts, series.size]
        found = [_change(series, *three) for three in zip(bounds, bounds[1:], bounds[2:], strict=False)]
        weakest = min(found, key=lambda each: abs(each.after - each.before))
        if abs(weakest.after - weakest.before) >= LEAST_CHANGE * abs(weakest.before):
            return tuple(found)
        cuts.remove(weakest.at)  # then its neighbours have other levels
    return ()


def _cuts(series: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[int]:
    try:
        from ruptures import KernelCPD  # noqa: PLC0415 with scipy half a second
    except ModuleNotFoundError as error:
        raise MissingLibraryError from error
    found = KernelCPD(kernel="rbf", min_size=LEAST_RUNS).fit((series / np.abs(series).max()).reshape(-1, 1))
    return [int(at) for at in found.predict(pen=_PENALTY * float(np.log(series.size)))[:-1]]


def _change(series: np.ndarray[tuple[int], np.dtype[np.float64]], start: int, at: int, end: int) -> LevelShift:
    before, after = series[start:at], series[at:end]
    levels = float(np.median(before)), float(np.median(after))
    both = series[start:end]
    stepped = np.abs(np.concatenate([before - levels[0], after - levels[1]])).sum()
    gradual = np.abs(both - _line(both)).sum() < _GRADUAL * stepped
    gradual = gradual or _drifts(before, after, levels) or _drifts(after[::-1], before[::-1], levels[::-1])
    return LevelShift(at, *levels, "gradual" if gradual else "step")


def _drifts(
    beside: np.ndarray[tuple[int], np.dtype[np.float64]], series: np.ndarray[tuple[int], np.dtype[np.float64]],
    levels: tuple[float, float],
) -> bool:  # fmt: skip
    """Does the series begin where the runs `beside` it end, and move on run by run? `levels`: of both.

    Kendall's test of a trend (H. B. Mann, Econometrica 13, 1945), at 1 %: six runs in one order are the fewest.
    """
    size, way = series.size, levels[1] - levels[0]
    first, second = np.triu_indices(size, 1)
    score = float(np.sign(series[second] - series[first]).sum() * np.sign(way))
    if score - 1 < _TREND * float(np.sqrt(size * (size - 1) * (2 * size + 5) / 18)):
        return False
    return bool(abs(_line(series)[0] - np.median(beside[-LEAST_RUNS:])) < _BEGINS * abs(way))


def _line(series: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The line with the median slope of all pairs (P. K. Sen, J. of the American Statistical Association 63, 1968)."""
    x = np.arange(series.size, dtype=np.float64)
    first, second = np.triu_indices(series.size, 1)
    slope = float(np.median((series[second] - series[first]) / (x[second] - x[first])))
    line: np.ndarray[tuple[int], np.dtype[np.float64]] = slope * x + float(np.median(series - slope * x))
    return line
