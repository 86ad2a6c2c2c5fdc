"""Has the length of a step changed for good? A sequential test on the lower quartile of each stretch.

E. S. Page's cumulative sum (Biometrika 41, 1954): how far the logarithms of the quartiles are above their reference is
summed up, less an allowance, never below zero; beyond a limit the level has changed, and it changed where the sum was
zero last. A disturbance only makes steps longer, and few of a stretch: their lower quartile hardly notices. Each value
counts up to a bound (P. J. Huber, Annals of Mathematical Statistics 35, 1964), so that no single one reaches the limit.

What the limits make of it is measured by `benchmarks/watch.py false-alarms` and `planted`, and stands in docs/watch.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

#: Stretches at the start that are left out: caches, autotuning, the allocator.
WARM_UP = 4
#: Stretches of the reference: the standard error of its median is a quarter of the noise of one.
REFERENCE = 32
#: Median absolute deviation → standard deviation of a normal distribution.
_MAD = 1.4826
#: From the 10th to the 90th percentile a normal distribution has so many deviations.
_DECILES = 2.563
#: The clock, and what a stretch has of it at least: half a per mille of a step.
_LEAST_NOISE = 0.000_5
#: Changes below 2 % are not looked for: half of that is allowed for nothing. With a noise above 2 % it is half a
#: deviation, and up to a whole one where stretches themselves differ by more than 2 %: lengths of padded batches jump
#: between a few values, of which the median of 32 is off by much.
LEAST_CHANGE = 0.02
_ALLOWANCE, _ALLOWANCE_IN_NOISE, _JUMPS = LEAST_CHANGE / 2, 0.5, 0.02
#: Of values beyond so many deviations the correlation with the next one is not theirs.
_KEPT, _MOST_ALIKE = 3.0, 0.9
#: In deviations of a sum of neighbours: the deviation of one times √((1 + r) / (1 - r)), r the correlation of two
#: neighbours (of an AR(1) process: G. Box, G. Jenkins, Time Series Analysis, 1970, chapter 3). With an allowance of a,
#: in deviations, a limit of 10 / a lets independent, normal noise raise a false alarm in e^20 stretches (D. Siegmund,
#: Sequential Analysis, 1985). That has to carry the error of the reference, heavy tails and more
#: dependence: measured, see above.
_LIMIT, _LIMIT_BY_ALLOWANCE = 10.0, 10.0
_LEAST_LIMIT = 0.04
#: A change is beyond what stretches differ by at the moment: beyond twice the error of the median of three, if they are
#: independent, and where neighbours are alike beyond this share of the deviation that counts then.
_OF_SPREAD, _OF_NOISE = 1.5, 0.8
#: No value adds more than this share of the limit.
_BOUND = 1 / 3
#: A change lasts for so many stretches and so long before it is one. A shorter one is over before it could be recorded.
LEAST_STRETCHES, LEAST_NS = 6, 5_000_000_000


class LevelChange(Struct, frozen=True):
    """Steps are `ratio` times as long as before, from step `first` on. `at`: the stretch, as they were given."""

    first: int
    at: int
    ratio: float


class LevelWatch:
    """`add` each stretch in its order; it returns a change when there is one, and takes what follows as the new level.

    Steps that have become shorter are no trouble: they are the new level without a word.
    """

    def __init__(self) -> None:
        self._skip = WARM_UP
        self._at = -1
        self.begin_anew()

    def begin_anew(self) -> None:
        """Take what follows as the level, whatever was before."""
        self._reference: list[float] = []
        self.level = self.spread = self.noise = 0.0  # of the logarithm
        self._above = self._below = 0.0
        self._since: list[tuple[int, int, int, float]] = []  # at, first step, end in ns, value: since the sum was zero

    def add(self, first: int, end_ns: int, quartile_ns: float) -> LevelChange | None:
        self._at += 1
        if self._skip:
            self._skip -= 1
            return None
        value = math.log(max(quartile_ns, 1.0))
        if not self.noise:
            self._reference.append(value)
            if len(self._reference) == REFERENCE:
                self._settle()
            return None
        return self._summed(first, end_ns, value)

    def _settle(self) -> None:
        values = np.array(self._reference)
        self.level = float(np.median(values))
        # Of batches that are padded to a few lengths the quartile jumps between two values: most are the same, and
        # their median deviation is nothing, while the others are no change.
        low, high = np.percentile(values, [10, 90])
        deviation = _MAD * float(np.median(np.abs(values - self.level)))
        self.spread = max(deviation, float(high - low) / _DECILES, _LEAST_NOISE)
        # A machine with other work is slower for some stretches on end: sums of such values wander further.
        kept = np.clip((values - self.level) / self.spread, -_KEPT, _KEPT)
        alike = float(np.clip((kept[1:] * kept[:-1]).sum() / max((kept**2).sum(), 1e-9), 0, _MOST_ALIKE))
        self.noise = self.spread * math.sqrt((1 + alike) / (1 - alike))

    def _summed(self, first: int, end_ns: int, value: float) -> LevelChange | None:
        beyond = 2 * max(self.spread - _JUMPS, 0.0)
        allowance = max(_ALLOWANCE, _ALLOWANCE_IN_NOISE * self.noise, min(beyond, self.noise))
        limit = max(_LIMIT * self.noise, _LIMIT_BY_ALLOWANCE * self.noise**2 / allowance, _LEAST_LIMIT)
        most = allowance + _BOUND * limit
        above = min(max(value - self.level, -most), most)
        self._below = max(self._below - above - allowance, 0.0)
        self._above = max(self._above + above - allowance, 0.0)
        if self._above:
            self._since.append((self._at, first, end_ns, value))
        else:
            self._since.clear()
        if self._below > limit:
            self.begin_anew()  # shorter
            return None
        return self._confirmed(limit) if self._above > limit else None

    def _confirmed(self, limit: float) -> LevelChange | None:
        """The change, if it has lasted, and has not gone again meanwhile."""
        since = self._since
        lasted_ns = since[-1][2] - since[0][2]
        if len(since) < LEAST_STRETCHES or lasted_ns < LEAST_NS:
            self._above = min(self._above, 2 * limit)  # one that goes is forgotten as fast as it came
            return None
        values = [value for *_, value in since]
        half, last = values[-max(len(since) // 2, LEAST_STRETCHES // 2) :], values[-LEAST_STRETCHES // 2 :]
        change = float(min(np.median(half), np.median(last))) - self.level
        jumps = _OF_SPREAD * self.spread + max(self.spread - _JUMPS, 0.0) / 2
        if change < max(LEAST_CHANGE, jumps, _OF_NOISE * self.noise):
            self._above = min(self._above, 2 * limit)
            return None
        at, first, *_ = since[0]
        self.begin_anew()
        return LevelChange(first, at, math.exp(change))


def is_gradual(lengths: Sequence[float]) -> bool | None:
    """Did the last change of the level come step by step? None where the library for it is not installed.

    `history.changes` says how: a line that fits better than two levels.
    """
    from perfdoctor.history.changes import MissingLibraryError, change_points  # noqa: PLC0415 scipy: half a second

    try:
        found = change_points([float(each) for each in lengths])
    except MissingLibraryError:
        return None
    return bool(found) and found[-1].kind == "gradual"
