"""Is every so many-th step a slow one? The phases of slow steps, folded by each distance that occurs between them.

If slow steps come by chance, with the rate at which they do come, the number of those that fall on one phase of a
period is binomial. The chance of as many as were found, times the number of periods and phases that there are, is the
probability of a false alarm (Bonferroni). That is one look; `LOOKS` says how many a training of a week has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

#: Slow steps come back within so many steps. What is rarer is found by its cost in the report of the whole run.
LONGEST = 2_000
#: Hits on one phase: fewer prove nothing, whatever the rate.
FEWEST = 6
#: A false alarm in a hundred weeks of training, if each of `LOOKS` evaluations were independent of the others: a week
#: has 15,000 looks at stretches of ten seconds, each of some spans of steps.
_MOST_CHANCE = 0.01
LOOKS = 100_000
#: Below this share of the time it is not worth a recording.
LEAST_SHARE = 0.01
_CANDIDATES = 32


class Period(Struct, frozen=True):
    """Each step with the remainder `phase` by `every` is slow.

    `share`: of the time, beyond a usual step; `slow_ns`: the usual length of the slow ones.
    """

    every: int
    phase: int
    hits: int
    share: float
    slow_ns: float


def period(slow: Sequence[tuple[int, int]], first: int, last: int, usual_ns: float) -> Period | None:
    """The period of slow steps (number, length in ns) among the steps from `first` to `last`; None without one."""
    numbers = np.array([number for number, _ in slow if first <= number <= last], dtype=np.int64)
    beyond = np.array([max(ns - usual_ns, 0.0) for number, ns in slow if first <= number <= last])
    span = last - first + 1
    if numbers.size < FEWEST or usual_ns <= 0:
        return None
    rate = numbers.size / span
    best: tuple[float, Period | None] = (0.0, None)
    for every in _distances(numbers):
        phases = np.bincount(numbers % every, minlength=every)
        phase = int(phases.argmax())
        hits, chances = int(phases[phase]), _occurrences(first, last, every, phase)
        if hits < FEWEST or hits * 2 < chances:  # half of its turns at least
            continue
        chance = _log_chance(hits, chances, rate)
        if chance < best[0]:
            of_it = beyond[numbers % every == phase]
            share = float(of_it.sum()) / (span * usual_ns + float(beyond.sum()))
            best = (chance, Period(every, phase, hits, share, usual_ns + float(np.median(of_it))))
    periods = LONGEST * (LONGEST + 1) / 2  # and phases
    is_sure = best[0] + math.log(periods * LOOKS) < math.log(_MOST_CHANCE)
    return best[1] if is_sure and best[1] is not None and best[1].share >= LEAST_SHARE else None


def _distances(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """The distances between slow steps that occur most often."""
    apart = (numbers[None, :] - numbers[:, None]).ravel()
    counted = np.bincount(apart[(apart > 1) & (apart <= LONGEST)], minlength=2)
    # A multiple of the period occurs nearly as often as the period.
    order = np.argsort(-counted, kind="stable")[:_CANDIDATES]
    return [int(each) for each in order if counted[each] >= FEWEST - 1]


def _occurrences(first: int, last: int, every: int, phase: int) -> int:
    """How many numbers from `first` to `last` have this remainder."""
    return (last - phase) // every - (first - 1 - phase) // every


def _log_chance(hits: int, chances: int, rate: float) -> float:
    """Logarithm of an upper bound of the binomial tail (W. Hoeffding, J. of the American Statistical Association 58,
    1963, theorem 1): exp(-n · D(k/n ‖ p)).
    """
    share = hits / chances
    if share <= rate:
        return 0.0
    distance = share * math.log(share / rate)
    if share < 1:
        distance += (1 - share) * math.log((1 - share) / (1 - rate))
    return -chances * distance
