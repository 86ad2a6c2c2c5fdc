"""Does something come every k steps, seen now and then?"""

from __future__ import annotations

import math

import numpy as np

from perfdoctor.model.columns import Ints

#: Of the steps in which something was seen, so many must fit its period, or all but one: some are seen one step late.
_FITS_SHARE = 0.9
#: Of the steps that fit a period, so many must have been seen: else any two of a long run had a period.
_SEEN_SHARE = 0.3
#: A period that chance gives more often is none.
CHANCE = 0.001
#: Of a period two must lie in the run.
_TWICE = 2


def period(numbers: Ints, count: int) -> tuple[int, int]:
    """The longest period of steps that these numbers fit, and their remainder; (0, 0) where they fit none, or all.

    Args:
        numbers: The numbers of steps in which something was seen, ascending; it may have been missed in others.
        count: How many steps there are.

    Returns:
        The period, of at least 2 steps, and the remainder of the numbers.
    """
    if numbers.size < _TWICE:
        return 0, 0
    least = min(math.ceil(_FITS_SHARE * numbers.size), numbers.size - 1)
    # A number that does not fit spoils two distances between neighbours; the others are multiples of the period.
    distances = np.sort(np.diff(numbers))
    longest = int(distances[min(2 * (numbers.size - least), distances.size - 1)])
    for every in range(min(count // _TWICE, longest), 1, -1):
        counts = np.bincount(numbers % every)
        rest = int(counts.argmax())
        fitting = int(counts[rest])
        if fitting >= max(_TWICE, least) and _is_proven(numbers, every, fitting):
            return every, rest
    return 0, 0


def _is_proven(numbers: Ints, every: int, fitting: int) -> bool:
    """Were enough of the steps that fit seen, all seen ones fitting, or is the period none that chance gives?"""
    there = (int(numbers[-1]) - int(numbers[0])) // every + 1
    is_seen = fitting >= max(_SEEN_SHARE * there, _FITS_SHARE * numbers.size)
    return is_seen or by_chance(every, fitting) < CHANCE


def by_chance(every: int, fitting: int) -> float:
    """The probability that so many numbers leave the same remainder for this period, or for a longer one, by chance.

    Of one period it is every ** -(fitting - 1); the sum over longer ones is bounded by the integral.
    """
    if fitting <= _TWICE:
        return 1.0
    return min(math.pow(every, 1.0 - fitting) * (1 + every / (fitting - 2.0)), 1.0)
