"""Is a rank late again and again, or does chance make one late now and another then?

A rank comes last in some collective of every step, and over a few steps chance alone makes one the latest. What shows
is whether it comes later than the others in one step after the other, by more than it varies:

```
signs  : in k of n steps it waits least of all, which chance does in each with 1 / R, of R ranks: binomial
size   : how much less it waits than the middle one of the others, the mean of all steps against its standard error:
         Student's t with n - 1 degrees of freedom
```

Steps are alike in a row: what holds a core holds it for several of them. So both are asked of steps, and of means over
two, four, … in a row as well (batch means; G. Fishman, Management Science 24, 1978), and the weakest answer counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import atan, comb, cos, pi, sin, sqrt

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.communication.skew import Skew
from perfdoctor.model.place import JobPlace
from perfdoctor.model.timeline import Floats, Ints

#: Fewer steps show no variation: then stretches of the recording are compared, each a tenth of it.
_FEWEST_STEPS, _STRETCHES = 3, 10
#: Batches of steps: fewer of them say little of their own variation, and nothing by their signs.
_FEWEST_BATCHES = 5


class Persistence(Struct, frozen=True):
    """A rank came last, all in all, in `late_in` of `compared` steps (not `of_steps`: of stretches of the recording).

    `chance`: the probability that one of equal ranks is as late, and as regularly; 1 where nothing can be compared.
    """

    late_in: int
    compared: int
    of_steps: bool
    chance: float

    @property
    def is_short(self) -> bool:
        """Are there too few steps for chance to be ruled out, however late a rank is?"""
        return not self.of_steps or self.compared < _FEWEST_BATCHES

    @property
    def mostly(self) -> bool:
        """Did it come last in most of them?"""
        return self.late_in * 2 > self.compared


def persistence(places: Sequence[JobPlace], matched: Skew, ranks: Ints) -> Persistence:
    """Return how persistently these ranks are late, taken together.

    Args:
        places: The places of `matched.ranks`.
        matched: The matched collectives.
        ranks: Which of `matched.ranks` they are, by their positions.
    """
    used = np.array([place.steps.used for place in places])
    # A rank whose recording breaks off has fewer steps than the others, which it says nothing of.
    count, cut_off = int(np.median(used)), np.flatnonzero(used < np.median(used))
    of_steps = count >= _FEWEST_STEPS
    count = count if of_steps else _STRETCHES
    stretch = _stretches(matched, count)
    waited = np.zeros((len(places), count))
    np.add.at(waited, (matched.came.place, stretch[matched.came.collective]), matched.waits_ns)
    waited = waited[:, np.unique(stretch)]  # a step without a collective says nothing
    left_out = np.union1d(ranks, cut_off if cut_off.size < len(places) - ranks.size else ranks)
    others, own = np.delete(waited, left_out, axis=0), waited[ranks].mean(axis=0)
    to_middle, to_next = np.median(others, axis=0) - own, others.min(axis=0) - own
    weakest = _weakest(to_middle, to_next, len(places) / ranks.size)
    return Persistence(int(np.count_nonzero(to_next > 0)), to_next.size, of_steps, weakest)


def persistence_of(own_ns: Ints, others_ns: Sequence[Ints]) -> Persistence:
    """How persistently a rank takes longer for the same work than its peers, each a number a step."""
    if not others_ns or not own_ns.size:
        return Persistence(0, own_ns.size, False, 1.0)
    later = own_ns - np.stack(others_ns).max(axis=0)
    return Persistence(int(np.count_nonzero(later > 0)), later.size, True, chance_of(own_ns, others_ns))


def chance_of(own_ns: Ints, others_ns: Sequence[Ints]) -> float:
    """How probable it is that one of equal ranks spends as much more time on something, and as regularly, by chance.

    Values are by step, of this rank and of each other; 1 where they have unequally many steps, or too few.
    """
    if own_ns.size < _FEWEST_BATCHES or any(other.size != own_ns.size for other in others_ns) or not others_ns:
        return 1.0
    others = np.stack(others_ns)
    return _weakest(own_ns - np.median(others, axis=0), own_ns - others.max(axis=0), 1.0 + len(others))


def _weakest(to_middle: Floats, to_next: Floats, choices: float) -> float:
    return max(_chance(*each, choices) for each in zip(_batches(to_middle), _batches(to_next), strict=True))


def _stretches(matched: Skew, count: int) -> Ints:
    """For each collective in which of `count` equal parts it is of those of its kind and group, in their order.

    A step has as many of them as the next: clocks and the edges of steps, which cut some in two, are not asked.
    """
    kinds = np.unique(np.array(matched.kinds), return_inverse=True)[1]
    first = np.searchsorted(matched.came.collective, np.arange(kinds.size))
    member, row = matched.came.place[first], matched.came.row[first]
    # Those of one kind and group stand together, in the order of their rows.
    begins = np.ones(kinds.size, dtype=bool)
    begins[1:] = (np.diff(kinds) != 0) | (np.diff(member) != 0) | (np.diff(row) < 0)
    own = np.cumsum(begins) - 1
    number = np.arange(own.size) - np.flatnonzero(begins)[own]
    result: Ints = number * count // np.bincount(own)[own]
    return result


def _batches(values: Floats) -> Iterator[Floats]:
    """Means over one, two, four, … in a row, as long as there are enough of them."""
    size = 1
    while size == 1 or values.size // size >= _FEWEST_BATCHES:
        whole = values.size // size
        yield values[: whole * size].reshape(whole, size).mean(axis=1)
        size *= 2


def _chance(to_middle: Floats, to_next: Floats, choices: float) -> float:
    """How probable it is that the latest of so many equal ranks is as late, by its signs or by its size.

    `to_middle`, `to_next`: how much longer the middle one of the others waits, and the one that waits least.
    """
    count, last_in, each = to_next.size, int(np.count_nonzero(to_next > 0)), 1 / choices
    signs = sum(comb(count, k) * each**k * (1 - each) ** (count - k) for k in range(last_in, count + 1))
    return min(min(signs, _size(to_middle)) * choices, 1.0)


def _size(ahead: Floats) -> float:
    """The probability of a mean as far above 0 by Student's t; 1 where there is no variation to hold it against."""
    if ahead.size < _FEWEST_STEPS or ahead.mean() <= 0:
        return 1.0
    error = float(ahead.std(ddof=1)) / sqrt(ahead.size)
    return _upper_tail(float(ahead.mean()) / error, ahead.size - 1) if error else 0.0


def _upper_tail(t: float, freedom: int) -> float:
    """The probability of more than `t` > 0 (M. Abramowitz, I. Stegun, Handbook of Mathematical Functions, 26.7.3-4)."""
    angle = atan(t / sqrt(freedom))
    is_odd = freedom % 2
    term = cos(angle) if is_odd else 1.0
    total = term if freedom > 1 else 0.0
    for step in range(3 if is_odd else 2, freedom - 1, 2):
        term *= cos(angle) ** 2 * (step - 1) / step
        total += term
    inside = 2 / pi * (angle + sin(angle) * total) if is_odd else sin(angle) * total
    return max((1 - inside) / 2, 0.0)
