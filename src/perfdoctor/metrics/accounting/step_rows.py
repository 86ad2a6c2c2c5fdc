"""What are the steps of the window, one by one: how long, of which parts, and what made the long ones long?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.outliers import OWNERS, edges, outliers, own_durations, step_parts
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Ints


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
    """None where no steps were found. `reach`, `least_share`: what is much longer, as in `outliers`."""
    bounds = edges(place)
    if not place.steps.used or bounds.size < 2:
        return None
    parts = step_parts(place)
    long = outliers(place, reach, least_share).rows
    names = np.full(bounds.size - 1, "", dtype=object)
    names[long] = _grown(parts, long)
    return StepRows(bounds[:-1] - place.window.starts[0], np.diff(bounds), parts, tuple(names.tolist()))


def _grown(parts: Mapping[str, Ints], long: Ints) -> list[str]:
    """For each long step the part that grew most."""
    others = np.ones(own_durations(parts).size, dtype=bool)
    others[long] = False
    counted = [part for part in parts if part in OWNERS]
    growth = np.stack([parts[part][long] - np.median(parts[part][others]) for part in counted])
    return [counted[row] for row in growth.argmax(axis=0).tolist()] if long.size else []
