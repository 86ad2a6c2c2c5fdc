"""Which steps took much longer than their neighbours, does the step time rise, and which part of the step did it?

Limits are robust: median plus a multiple of the median absolute deviation, and slopes as medians over all pairs
(Theil-Sen), so a few odd steps move neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Ints
from perfdoctor.vocabulary.parts import PARTS

#: The median absolute deviation of a normal distribution times this is its standard deviation.
_MAD_TO_SIGMA = 1.4826
#: Slopes are taken over all pairs of steps: of more steps than this, evenly many are used.
_MOST_STEPS = 400

#: Which rules own a part of the step: where one of them speaks, a long step is its symptom. The profiler's own time is
#: no part of a step's length.
OWNERS: Mapping[str, tuple[str, ...]] = {name: part.rules for name, part in PARTS.items() if name != "profiler"}


def edges(place: Place) -> Ints:
    """Where to cut the window in order to compare its steps, in ns: one more than there are steps.

    The last step may be missing: on the main stream it can end behind the window.
    """
    bounds = place.steps.even_bounds
    inside: Ints = bounds[bounds <= place.window.ends[-1]]
    return inside


def step_parts(place: Place) -> dict[str, Ints]:
    """How long each part of the accounting took in each step, in ns; they sum to the steps' durations."""
    bounds = edges(place)
    return {part: instants.overlap_ns(bounds[:-1], bounds[1:]) for part, instants in place.parts.items()}


def own_durations(parts: Mapping[str, Ints]) -> Ints:
    """Each step without what the profiler itself took, in ns."""
    total: Ints = np.sum([ns for part, ns in parts.items() if part in OWNERS], axis=0, dtype=np.int64)
    return total


@dataclass(frozen=True)
class Outliers:
    """`rows` are the positions of the long steps, `excess_ns` how much each exceeds the median.

    `part` grew most in them, by `part_excess_ns` in all, against its median in the other steps. `period`: every so many
    steps there is one, 0 if they come at no even distance (or are fewer than three).
    """

    rows: Ints
    durations_ns: Ints
    median_ns: int
    excess_ns: Ints
    part: str
    part_excess_ns: int
    period: int


def outliers(place: Place, deviations: float, least_share: float) -> Outliers:
    """Steps longer than the median by this many deviations, and by this share of it."""
    parts = step_parts(place)
    durations = own_durations(parts)
    median = float(np.median(durations)) if durations.size else 0.0
    spread = _MAD_TO_SIGMA * float(np.median(np.abs(durations - median))) if durations.size else 0.0
    long = durations > median + max(deviations * spread, least_share * median)
    rows = np.flatnonzero(long).astype(np.int64)
    if not rows.size:
        return Outliers(rows, durations, round(median), rows, "", 0, 0)
    grown = {part: float((ns[long] - np.median(ns[~long])).sum()) for part, ns in parts.items() if part in OWNERS}
    part = max(grown, key=lambda name: grown[name])
    excess = (durations[long] - median).astype(np.int64)
    return Outliers(rows, durations, round(median), excess, part, round(max(grown[part], 0.0)), _period(rows))


def _period(rows: Ints) -> int:
    """The distance at which they come, if three or more come at one and the same."""
    gaps = np.diff(rows)
    return int(gaps[0]) if gaps.size > 1 and gaps[0] > 1 and (gaps == gaps[0]).all() else 0


def same_work(place: Place, rows: Ints, tolerance: float) -> bool:
    """Did the long steps launch no more kernels and blocks than the others? Then the device was slower, not busier.

    False where the recording has no grid sizes.
    """
    kernels = place.kernels
    if not len(kernels) or (kernels["blocks"] <= 0).any():
        return False
    bounds = edges(place)
    for weights in (np.ones(len(kernels)), kernels["blocks"].astype(np.float64)):
        amount = np.histogram(kernels.start_ns, bins=bounds, weights=weights)[0]
        others = np.delete(amount, rows)
        # Where streams overlap a step's first kernels run in the one before: steps of the same work differ by those.
        usual = np.abs(others - np.median(others)).max(initial=0.0)
        if (amount[rows] - np.median(others)).max() > max(tolerance * float(np.median(others)), float(usual)):
            return False
    return True


@dataclass(frozen=True)
class Drift:
    """The usual rise from one step to the next, and the share of all pairs of steps in which the later is longer."""

    ns_per_step: float
    rising_share: float


def drift(values_ns: Ints) -> Drift:
    """The slope of a series of at least two, as the median over all pairs (Theil-Sen)."""
    at = np.unique(np.linspace(0, values_ns.size - 1, min(values_ns.size, _MOST_STEPS)).astype(np.int64))
    values = values_ns[at].astype(np.float64)
    first, second = np.triu_indices(at.size, k=1)
    rise = values[second] - values[first]
    return Drift(float(np.median(rise / (at[second] - at[first]))), float(np.mean(rise > 0)))
