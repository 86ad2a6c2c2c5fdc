"""By how much does a treatment change the step, as far as the pairs of runs so far show?

A pair is a treated and an untreated run that were made shortly after each other; its value is the logarithm of their
mean steps' ratio. Runs are the unit: steps of one run depend on each other.

After each pair one looks, and stops where it is decided. An interval for a fixed number of pairs would then be wrong
far more often than it says. The one here holds at all times at once: it is the set of means that the t-statistic's
mixture martingale, with a normal distribution over effect sizes, has not rejected (T. Lai, The Annals of Statistics 4,
1976; H. Wang, A. Ramdas, Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance,
Sequential Analysis 44, 2025). With n values, t of them, r = c²/(n + c²) and at most α of all sequences outside:

    sqrt(r) · ((1 + t²/(n-1)) / (1 + r · t²/(n-1)))^(n/2)  <  1/α
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

#: c²: effects that are worth a fix are some times as large as pairs differ. Where they are 4.5 times as large (one over
#: the root of it) the interval is narrowest; with 1.5 times it is a tenth wider, and with three pairs it still ends.
_PRECISION = 0.05
#: Of all commands without anything that helps, at most so many keep something.
WRONGLY_KEPT = 0.05


class Change(Struct, frozen=True):
    """The change of the step as shares of the untreated one: negative is faster. `pairs`: how many it rests on."""

    low: float
    likely: float
    high: float
    pairs: int


def level(treatments: int) -> float:
    """The share α of sequences that may leave one treatment's interval.

    Something is kept wrongly with the chance of WRONGLY_KEPT for all treatments of a command together (Bonferroni).
    Without an effect a sequence leaves upwards as often as downwards, and only one of these keeps a treatment.
    """
    return min(2 * WRONGLY_KEPT / max(treatments, 1), 0.5)


def change(log_ratios: Sequence[float], alpha: float) -> Change | None:
    """The change by these pairs; None with fewer than two. Ends may be infinite."""
    return change_of_more(log_ratios, len(log_ratios), alpha)


def change_of_more(log_ratios: Sequence[float], pairs: int, alpha: float) -> Change | None:
    """The change that so many pairs would show, if they are as these; None with fewer than two of these."""
    values = np.asarray(log_ratios, np.float64)
    if values.size < 2:
        return None
    middle, reach = float(values.mean()), _reach(pairs, float(values.std(ddof=1)), alpha)
    return Change(math.expm1(middle - reach), math.expm1(middle), _grown(middle + reach), pairs)


def _reach(n: int, spread: float, alpha: float) -> float:
    """Half of the interval's width."""
    r = _PRECISION / (n + _PRECISION)
    bound = (alpha * alpha * r) ** (-1 / n)
    if bound * r >= 1:
        return math.inf
    squared = (bound - 1) / (1 - bound * r)  # t² over n - 1
    return spread * math.sqrt(squared * (n - 1) / n)


def _grown(logarithm: float) -> float:
    return math.expm1(logarithm) if logarithm < 700 else math.inf
