"""Where is a number on a chart's axis, and which ticks does the axis have?"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from perfdoctor.model.columns import Floats
from perfdoctor.records.views import Axis, Unit
from perfdoctor.report.charts import words

#: Round distances between ticks; for bytes powers of two, and no fractions where numbers are whole.
_NICE = (1, 2, 2.5, 5, 10)
_NICE_BYTES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_NICE_WHOLE = (1, 2, 5, 10)
_WHOLE_UNITS = frozenset(("count", "position"))
#: Beyond this many powers of ten not each of them gets a label.
_MOST_POWERS = 7


class Scale(Struct, frozen=True):
    """Maps numbers to shares of an axis' length, 0 at its low end. On a logarithmic axis numbers ≤ 0 become NaN."""

    low: float
    high: float
    logarithmic: bool
    unit: Unit

    def at(self, values: npt.ArrayLike) -> Floats:
        numbers = np.asarray(values, np.float64)
        if not self.logarithmic:
            return (numbers - self.low) / (self.high - self.low)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(numbers > 0, np.log10(np.where(numbers > 0, numbers, 1.0)), np.nan)
        return (logs - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Each tick's share of the length, and its label."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = max(1, math.ceil((last - first + 1) / _MOST_POWERS))
            values = [10.0**power for power in range(first, last + 1, every)]
            labels = [words.power_label(value, self.unit) for value in values]
        else:
            step = _nice_step((self.high - self.low) / most, self.unit, self.high)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            values = [number * step for number in range(first, last + 1)]
            labels = words.tick_labels(values, self.unit)
        return list(zip(self.at(values).tolist(), labels, strict=True))


def scale(axis: Axis, values: Iterable[Floats], *, from_zero: bool, to_round: bool = False) -> Scale:
    """An axis that contains all the numbers; if there are none, or all are equal, a range around them.

    from_zero: the axis includes 0, as for lengths that are compared. to_round: both ends are round numbers, so that the
    highest mark does not touch the frame.
    """
    parts = [np.asarray(each, np.float64).ravel() for each in values]
    known = np.concatenate(parts) if parts else np.empty(0)
    known = known[np.isfinite(known) & ((known > 0) | (not axis.logarithmic))]
    low, high = (float(known.min()), float(known.max())) if known.size else (1.0, 1.0)
    if axis.logarithmic:  # whole powers of ten at both ends, at least one apart
        first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
        return Scale(10.0**first, 10.0 ** max(last, first + 1), True, axis.unit)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = (low, low + 1.0) if from_zero or not low else (low - abs(low) / 2, high + abs(high) / 2)
    if to_round:
        step = _nice_step((high - low) / 5, axis.unit, high)
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Scale(low, high, False, axis.unit)


def _nice_step(least: float, unit: Unit, high: float) -> float:
    """The smallest round distance that is at least `least`, on an axis up to `high`."""
    size, _ = words.scale_of(high, unit)
    scaled = least / size
    if unit in _WHOLE_UNITS:
        scaled = max(scaled, 1.0)
    power = math.floor(math.log10(scaled)) if scaled > 0 else 0
    if unit == "bytes" and scaled >= 1:
        return size * next((step for step in _NICE_BYTES if step >= scaled * (1 - 1e-9)), _NICE_BYTES[-1])
    steps = _NICE_WHOLE if unit in _WHOLE_UNITS else _NICE
    return float(size * next(step * 10.0**power for step in steps if step * 10.0**power >= scaled * (1 - 1e-9)))
