"""What do rows that belong together have in common? Counts, sums, medians and prevailing values, a group at a time.

A group is a number from 0; every array has one element a row, every result one a group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from perfdoctor.model.columns import Whole, firsts, numbered
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Ints

#: 2.4 hours in ns: no single kernel, call or op is longer, and 20 bits are left for the groups.
_VALUE_BITS = 43
_LARGEST = (1 << _VALUE_BITS) - 1


class GroupSpread(Struct, frozen=True):
    """Count, sum, median, least and most of each group's whole numbers; NaN where a group is empty."""

    count: Ints
    total: Floats
    median: Floats
    least: Floats
    most: Floats

    @property
    def mean(self) -> Floats:
        return ratio(self.total, self.count)

    def take(self, groups: Ints) -> GroupSpread:
        """The numbers of these groups alone, in this order."""
        return GroupSpread(
            self.count[groups], self.total[groups], self.median[groups], self.least[groups], self.most[groups]
        )


def spread(group: Ints, values: Ints, groups: int) -> GroupSpread:
    """How `values`, which are not negative, spread in each of `groups` groups."""
    # Group and value are sorted as one number, which is much faster than as two.
    packed = np.sort((group.astype(np.int64) << _VALUE_BITS) | np.minimum(values, _LARGEST))
    edges = np.searchsorted(packed, np.arange(groups + 1, dtype=np.int64) << _VALUE_BITS)
    first, last = edges[:-1], edges[1:] - 1
    ordered = np.append(packed & _LARGEST, 0).astype(np.float64)
    full = last >= first

    def at(place: Ints) -> Floats:
        return np.where(full, ordered[np.clip(place, 0, max(packed.size - 1, 0))], np.nan)

    return GroupSpread(
        count=(last - first + 1).astype(np.int64),
        total=sums(group, values, groups),
        median=np.mean((at((first + last) >> 1), at((first + last + 1) >> 1)), axis=0),
        least=at(first),
        most=at(last),
    )


def sums(group: Ints, values: npt.NDArray[np.generic], groups: int) -> Floats:
    return np.bincount(group, weights=values, minlength=groups).astype(np.float64, copy=False)


def ratio(part: npt.NDArray[np.generic], whole: npt.NDArray[np.generic]) -> Floats:
    """`part` over `whole`; NaN where the whole is 0."""
    top, bottom = part.astype(np.float64), whole.astype(np.float64)
    known = bottom != 0
    return np.where(known, top / np.where(known, bottom, 1), np.nan)


def of_known(reduced: Callable[[Floats], np.floating[Any]], values: Floats) -> float:
    """`reduced` (`np.nanmean` and its like) of the values that are known; NaN where none is."""
    return float(reduced(values)) if not np.isnan(values).all() else float("nan")


def weighted_mean(values: Floats, weight: Floats | Ints) -> float:
    """The mean of the values that are known and weigh anything; NaN where none does."""
    known = ~np.isnan(values) & (weight > 0)
    return float(np.average(values[known], weights=weight[known])) if known.any() else float("nan")


def weighted_median(values: Floats, weight: Floats) -> float:
    """The first value, in ascending order, up to which at least half of all weight lies."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def combined(*columns: Whole) -> tuple[Ints, Ints]:
    """The group of each row, where rows that agree in all columns are one, and a row of each group."""
    keys = np.zeros(columns[0].size, dtype=np.int64)
    for column in columns:
        values, numbers = numbered(column)
        _, keys = numbered(keys * max(values.size, 1) + numbers)
    return keys, firsts(keys)


def prevailing(group: Ints, values: Ints, weight: npt.NDArray[np.generic], groups: int) -> Ints:
    """For each group the value that weighs most in it; UNKNOWN in an empty one. Values are UNKNOWN or more."""
    found = np.full(groups, UNKNOWN, dtype=np.int64)
    if not group.size:
        return found
    shift = int(values.max()) + 2
    pairs, pair = np.unique(group * shift + values + 1, return_inverse=True)
    order = np.argsort(sums(pair.ravel(), weight, pairs.size), kind="stable")
    found[pairs[order] // shift] = pairs[order] % shift - 1  # the heaviest is written last
    return found


def counterparts(rows: Frame, bounds: Ints) -> tuple[Ints, int]:
    """The group of each row, which is the so many-th of its name in each step, and how many groups there are.

    `bounds`: where the steps begin and end, in ns.
    """
    step, name = np.searchsorted(bounds, rows.start_ns, side="right"), rows.name.codes.astype(np.int64)
    group, first = combined(name, number_in_step(name, step, rows.start_ns))
    return group, first.size


def number_in_step(name: Ints, step: Ints, start_ns: Ints) -> Ints:
    """For each row how many rows of its name started before it in its step: the same work has one number in each."""
    order = np.lexsort((start_ns, name, step))
    begins = np.ones(order.size, dtype=bool)
    begins[1:] = (np.diff(name[order]) != 0) | (np.diff(step[order]) != 0)
    number = np.empty(order.size, np.int64)
    number[order] = np.arange(order.size) - np.maximum.accumulate(np.where(begins, np.arange(order.size), 0))
    return number
