"""Is one step far longer than all others by something that comes once? Then the others are what training costs.

The mean of 143, 400 and 140 ms is no step that the training has. Memory that grows, code that is compiled or loaded:
such a step is left out of the numbers, and reported by itself (rule one-long-step).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfdoctor.metrics.accounting.outliers import edges, step_parts
from perfdoctor.metrics.accounting.selection import in_steps
from perfdoctor.model.place import Place
from perfdoctor.model.run import OddStep

#: Of fewer steps none is known to be the odd one.
_FEWEST = 3
#: The odd step is longer than the median by this factor, as warm-up is (`model.steps`), and all others are shorter.
_FACTOR = 1.5
#: What comes once, as far as anybody knows: a wait for a batch or a garbage collection comes again every few steps.
_ONCE = ("allocator", "compilation")
#: The share of what the odd step takes beyond the others that comes once, at least.
_LEAST_EXPLAINED = 0.5


def without_odd_step(places: Sequence[Place]) -> tuple[Sequence[Place], OddStep | None]:
    """The places in the longest row of usual steps, and the odd step; the places as they are where there is none."""
    used = min((place.steps.used for place in places), default=0)
    if used < _FEWEST or any(place.steps.used != used or place.steps.lengths_ns is not None for place in places):
        return places, None
    durations = np.mean([place.steps.durations_ns for place in places], axis=0)
    odd = int(durations.argmax())
    others = np.delete(durations, odd)
    usual = float(np.median(others))
    if durations[odd] <= _FACTOR * usual or others.max() > _FACTOR * usual:
        return places, None
    part, excess_ns = max((_grown(place, odd) for place in places), key=lambda grown: grown[1])
    if part not in _ONCE or excess_ns < _LEAST_EXPLAINED * (durations[odd] - usual):
        return places, None
    first, last = (0, odd) if odd >= used - 1 - odd else (odd + 1, used)
    kept = [in_steps(place, first, last) for place in places]
    return kept, OddStep(odd + 1, used, round(float(durations[odd])), round(usual), part, excess_ns)


def _grown(place: Place, odd: int) -> tuple[str, int]:
    """The part that grew most in this step of a place, and by how many ns; what it waited for others is no cause."""
    if edges(place).size <= odd + 1:
        return "", 0
    parts = {name: ns for name, ns in step_parts(place).items() if name != "exposed_communication"}
    grown = {name: int(ns[odd] - np.median(np.delete(ns, odd))) for name, ns in parts.items()}
    return max(grown.items(), key=lambda each: each[1])
