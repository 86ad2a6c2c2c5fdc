"""Does a host stand still for equally long in every step, as a sleep, a timer or a fixed job makes it?"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place

#: Of fewer steps two may be alike by chance.
_FEWEST_STEPS = 3


class Pause(Struct, frozen=True, eq=False):
    """The longest piece of idle time of each step: their median in ns, and how far they lie apart, as a share of it."""

    ns: int
    apart: float
    pieces: Intervals


def pause_of(place: Place, idle: Intervals) -> Pause | None:
    """The longest piece of `idle` that begins in each used step; None where a step has none, or steps are few."""
    edges = place.steps.used_bounds
    step = np.searchsorted(edges, idle.starts, side="right") - 1
    inside = (step >= 0) & (step < edges.size - 1)
    if edges.size - 1 < _FEWEST_STEPS or not inside.any():
        return None
    order = np.lexsort((idle.durations_ns, step))
    order = order[inside[order]]
    last = order[np.flatnonzero(np.diff(step[order], append=edges.size))]
    if last.size < edges.size - 1:
        return None
    took = idle.durations_ns[last]
    middle = float(np.median(took))
    return Pause(int(middle), float(took.max() - took.min()) / middle, Intervals(idle.starts[last], idle.ends[last]))
