"""How long is each step, which took much longer than the others, by which part, and does the step time rise?

Limits are quartiles of the steps themselves, and slopes are medians over all pairs (Theil-Sen), so a few odd steps move
neither. No distribution is assumed: steps are skewed, as many things make a step longer and few shorter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.selection import in_steps
from perfdoctor.metrics.whole_run.partition import partitions, recorded_with_pauses
from perfdoctor.model.place import Place
from perfdoctor.model.run import OddStep
from perfdoctor.model.timeline import Ints, Mask, Timeline
from perfdoctor.vocabulary.parts import PARTS

#: The ends of an 80 % interval, as quantiles of the other steps and in standard deviations of a normal distribution.
_TENTHS, _TENTH_OF_NORMAL = (0.1, 0.9), 1.2816
#: The median and the upper quartile.
_QUARTILES = (0.5, 0.75)
#: The cube root of a Poisson mean's limit is nearly normal (E. Wilson, M. Hilferty, 1931).
_CUBE = 3
#: Slopes are taken over all pairs of steps: of more steps than this, so many at even distances are used.
_MOST_STEPS = 400

#: Which rules own a part of the step: where one of them speaks, a long step is its symptom. The profiler's own time is
#: no part of a step's length.
OWNERS: Mapping[str, tuple[str, ...]] = {name: part.rules for name, part in PARTS.items() if name != "profiler"}


def edges(place: Place) -> Ints:
    """The moments at which to cut the window in order to compare its steps, in ns: one more than there are steps.

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
    """How long each step is without what the profiler itself took, in ns; `parts` as of `step_parts`."""
    total: Ints = np.sum([ns for part, ns in parts.items() if part in OWNERS], axis=0, dtype=np.int64)
    return total


class Outliers(Struct, frozen=True):
    """`rows` are the positions of the long steps, `excess_ns` how much each exceeds the median of the others.

    `excess_low_ns`, `excess_high_ns`: the sum of what the long steps take beyond the longest and the shortest tenth of
    the others. `part` grew most in them, by `part_excess_ns` in all, against its median in the other steps. `period`:
    every so many steps one is long; 0 if they come at no even distance, or are fewer than three.
    """

    rows: Ints
    durations_ns: Ints
    median_ns: int
    excess_ns: Ints
    excess_low_ns: int
    excess_high_ns: int
    part: str
    part_excess_ns: int
    period: int


def outliers(place: Place, reach: float, least_share: float) -> Outliers:
    """The steps that are longer than the median by `least_share` of it, and lie beyond the upper quartile by `reach`
    times its distance from the median (the fence of a boxplot for skewed data: A. C. Kimber, Applied Statistics 39,
    1990).
    """
    parts = step_parts(place)
    durations = own_durations(parts)
    long = _beyond_fence(durations, reach, least_share)
    rows = np.flatnonzero(long).astype(np.int64)
    if not rows.size:
        return Outliers(rows, durations, round(_median(durations)), rows, 0, 0, "", 0, 0)
    grown = {part: float((ns[long] - np.median(ns[~long])).sum()) for part, ns in parts.items() if part in OWNERS}
    part = max(grown, key=lambda name: grown[name])
    usual = _median(durations[~long])
    shortest, longest = np.quantile(durations[~long], _TENTHS).tolist()
    gaps = np.diff(rows)
    period = int(gaps[0]) if gaps.size > 1 and gaps[0] > 1 and (gaps == gaps[0]).all() else 0
    return Outliers(
        rows, durations, round(usual), (durations[long] - usual).astype(np.int64),
        int(np.maximum(durations[long] - longest, 0).sum()), int((durations[long] - shortest).sum()),
        part, round(max(grown[part], 0.0)), period,
    )  # fmt: skip


def _beyond_fence(durations: Ints, reach: float, least_share: float) -> Mask:
    """One bool a step: is it longer than both limits of `outliers`?"""
    if not durations.size:
        return np.zeros(0, dtype=bool)
    # Of values that are there: up to a quarter of the steps may be long without moving them.
    middle, upper = np.quantile(durations, _QUARTILES, method="lower").tolist()
    long: Mask = durations > max(upper + reach * (upper - middle), (1 + least_share) * _median(durations))
    return long


def _median(values: Ints) -> float:
    return float(np.median(values)) if values.size else 0.0


def least_of_rate(count: int) -> float:
    """How often an event that came `count` times comes at least, nine times out of ten, as a share of `count`.

    This is the lower limit of a Poisson mean (F. Garwood, Biometrika 28, 1936), by its cube root.
    """
    deviation = 1 / (_CUBE * math.sqrt(count))
    return max(1 - deviation * deviation - _TENTH_OF_NORMAL * deviation, 0.0) ** _CUBE


def same_work(place: Place, rows: Ints, tolerance: float) -> bool:
    """Did the steps in `rows` launch no more kernels and blocks than the others, but for `tolerance` (a share)?

    Then the device was slower, not busier. False where the recording has no grid sizes.
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


class Drift(Struct, frozen=True):
    """The usual rise from one step to the next, and the share of pairs of steps in which the later is longer."""

    ns_per_step: float
    rising_share: float


def drift(values_ns: Ints) -> Drift:
    """The slope of a series of at least two, as the median over all pairs (Theil-Sen)."""
    at = np.unique(np.linspace(0, values_ns.size - 1, min(values_ns.size, _MOST_STEPS)).astype(np.int64))
    values = values_ns[at].astype(np.float64)
    first, second = np.triu_indices(at.size, k=1)
    rise = values[second] - values[first]
    return Drift(float(np.median(rise / (at[second] - at[first]))), float(np.mean(rise > 0)))


class StepRows(Struct, frozen=True):
    """The steps of one place that are compared, in order. All arrays have one element a step, times in ns.

    `start_ns` counts from the window's beginning. `parts_ns` sum to `duration_ns`. `grown`: of a step much longer than
    the others, the part that is longest beyond its median in the others; "" for all other steps.
    """

    start_ns: Ints
    duration_ns: Ints
    parts_ns: Mapping[str, Ints]
    grown: tuple[str, ...]


def step_rows(place: Place, reach: float, least_share: float) -> StepRows | None:
    """The place's steps one by one; None where none were found. `reach` and `least_share` are those of `outliers`."""
    bounds = edges(place)
    if not place.steps.used or bounds.size < 2:
        return None
    parts = step_parts(place)
    long = outliers(place, reach, least_share).rows
    names = np.full(bounds.size - 1, "", dtype=object)
    if long.size:
        counted = [part for part in parts if part in OWNERS]
        growth = [parts[part][long] - np.median(np.delete(parts[part], long)) for part in counted]
        names[long] = [counted[row] for row in np.argmax(growth, axis=0).tolist()]
    return StepRows(bounds[:-1] - place.window.starts[0], np.diff(bounds), parts, tuple(names.tolist()))


# --- one odd step: the mean of 143, 400 and 140 ms is no step that the training has. Memory that grows, code that is
# compiled or loaded: such a step is left out of the numbers, and reported by itself (rule one-long-step).

#: Of fewer steps none is known to be the odd one.
_FEWEST_STEPS = 3
#: The odd step is longer than the median by this factor, as warm-up is (`model.steps`), and all others are shorter.
_TIMES_THE_MEDIAN = 1.5
#: What comes once, as far as anybody knows: a wait for a batch or a garbage collection comes again every few steps.
_ONCE = ("allocator", "compilation")
#: The share of what the odd step takes beyond the others that comes once, at least.
_LEAST_EXPLAINED = 0.5


def without_odd_step(places: Sequence[Place]) -> tuple[Sequence[Place], OddStep | None]:
    """The places in the longest row of usual steps, and the odd step; the places as they are where there is none."""
    used = min((place.steps.used for place in places), default=0)
    if used < _FEWEST_STEPS or any(place.steps.used != used or place.steps.lengths_ns is not None for place in places):
        return places, None
    durations = np.mean([place.steps.durations_ns for place in places], axis=0)
    odd = int(durations.argmax())
    others = np.delete(durations, odd)
    usual = float(np.median(others))
    if durations[odd] <= _TIMES_THE_MEDIAN * usual or others.max() > _TIMES_THE_MEDIAN * usual:
        return places, None
    part, excess_ns = max((_grown(place, odd) for place in places), key=lambda grown: grown[1])
    if part not in _ONCE or excess_ns < _LEAST_EXPLAINED * (durations[odd] - usual):
        return places, None
    first, last = (0, odd) if odd >= used - 1 - odd else (odd + 1, used)
    kept = [in_steps(place, first, last) for place in places]
    return kept, OddStep(odd + 1, used, round(float(durations[odd])), round(usual), part, excess_ns)


# --- steps that hold something else: an evaluation is no part of the step that the training has, and is reported as a
# part of the whole run.

#: Of the training's time; what takes less makes no step another one.
_PAUSE_SHARE = 0.05


def without_pauses(places: Sequence[Place], timeline: Timeline) -> tuple[Sequence[Place], int]:
    """The places in the longest row of steps that hold no evaluation, checkpoint or the like, and how many do.

    The places as they are where too few steps would be left, or nothing is known of the whole run.
    """
    used = min((place.steps.used for place in places), default=0)
    if used < _FEWEST_STEPS or any(place.steps.used != used or place.steps.lengths_ns is not None for place in places):
        return places, 0
    holds = np.zeros(used, dtype=bool)
    for found in partitions(timeline):
        begins, ends = (each - (timeline.epoch_ns or 0) for each in recorded_with_pauses(found, _PAUSE_SHARE))
        for place in (each for each in places if each.rank == found.run.rank):
            middle = (place.steps.used_bounds[:-1] + place.steps.used_bounds[1:]) // 2
            at = np.searchsorted(begins, middle, side="right") - 1
            if begins.size:
                holds |= (at >= 0) & (middle < ends[np.maximum(at, 0)])
    borders = np.concatenate([[-1], np.flatnonzero(holds), [used]])
    longest = int(np.diff(borders).argmax())
    first, last = int(borders[longest]) + 1, int(borders[longest + 1])
    if not holds.any() or last - first < _FEWEST_STEPS:
        return places, 0
    return [in_steps(place, first, last) for place in places], int(holds.sum())


def _grown(place: Place, odd: int) -> tuple[str, int]:
    """The part that grew most in this step of a place, and by how many ns; what it waited for others is no cause."""
    if edges(place).size <= odd + 1:
        return "", 0
    parts = {name: ns for name, ns in step_parts(place).items() if name != "exposed_communication"}
    grown = {name: int(ns[odd] - np.median(np.delete(ns, odd))) for name, ns in parts.items()}
    return max(grown.items(), key=lambda each: each[1])
