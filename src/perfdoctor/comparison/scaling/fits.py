"""Which line fits numbers best, and how sure is it? Ordinary least squares with standard errors.

Slope b = Σ(x − x̄)(y − ȳ) / Σ(x − x̄)², intercept a = ȳ − b·x̄; s² = Σ(y − a − b·x)² / (m − 2);
standard errors s / √Σ(x − x̄)² of the slope, s·√(1/m + x̄² / Σ(x − x̄)²) of the intercept, and
s·√(1 + 1/m + (x − x̄)² / Σ(x − x̄)²) of another observation at x
(N. Draper, H. Smith, Applied Regression Analysis, 3rd ed., 1998, chapter 1). A line through the origin: b = Σxy / Σx²,
with m − 1 degrees of freedom. Both are linear in y: the lines of several causes sum to the line of their sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct


class FittedLine(Struct, frozen=True):
    """y = intercept + slope · x. Errors are standard errors; None where there are as few points as parameters."""

    intercept: float
    slope: float
    intercept_error: float | None = None
    slope_error: float | None = None

    def at(self, x: float) -> float:
        return self.intercept + self.slope * x


def line(x: Sequence[float], y: Sequence[float]) -> FittedLine:
    """The least-squares line through two or more points whose x are not all equal."""
    across, up = np.asarray(x, np.float64), np.asarray(y, np.float64)
    middle = float(across.mean())
    spread = float(((across - middle) ** 2).sum())
    slope = float(((across - middle) * (up - up.mean())).sum()) / spread
    intercept = float(up.mean()) - slope * middle
    if across.size < 3:
        return FittedLine(intercept, slope)
    left = math.sqrt(float(((up - intercept - slope * across) ** 2).sum()) / (across.size - 2))
    return FittedLine(
        intercept, slope, left * math.sqrt(1 / across.size + middle**2 / spread), left / math.sqrt(spread)
    )  # fmt: skip


def error_at(x: Sequence[float], y: Sequence[float], at: float) -> float:
    """The standard error of another observation there, by the line through these; 0.0 where two points show none."""
    fit, across = line(x, y), np.asarray(x, np.float64)
    if fit.slope_error is None:
        return 0.0
    spread = float(((across - across.mean()) ** 2).sum())
    left = fit.slope_error * math.sqrt(spread)
    return left * math.sqrt(1 + 1 / across.size + (at - float(across.mean())) ** 2 / spread)


def through_origin(x: Sequence[float], y: Sequence[float]) -> FittedLine:
    """The least-squares line y = slope · x through one or more points."""
    across, up = np.asarray(x, np.float64), np.asarray(y, np.float64)
    size = float((across**2).sum())
    slope = float((across * up).sum()) / size
    if across.size < 2:
        return FittedLine(0.0, slope)
    left = math.sqrt(float(((up - slope * across) ** 2).sum()) / (across.size - 1))
    return FittedLine(0.0, slope, None, left / math.sqrt(size))
