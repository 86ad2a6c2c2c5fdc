"""What would ranks win that met once a step, with all they have to say, instead of many times?

Of a run without a GPU, where threads of the host send what the training threads wait for.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.host_place import HostPlace
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.skew import Skew
from perfdoctor.timeline.intervals import Intervals


def messages_ns(run: Run, matched: Skew, quick: float) -> int:
    """What a step's messages cost beside what they carry, all but one of them.

    The quickest (`quick`: which share of them) carry next to nothing: what they take, every one costs.
    """
    each, units = matched.shortest_ns, run.places[0].units
    return int(max(each.size / units - 1, 0) * float(np.quantile(each, quick))) if each.size else 0


def asking_ns(run: Run, matched: Skew) -> int:
    """What training threads do for a step's messages, and wait for while nothing is sent, for all but one of them."""
    per_step = matched.shortest_ns.size / run.places[0].units

    def of_place(place: HostPlace) -> int:
        sending = place.recorded_collectives
        asking = (place.own_communication | place.handed_over) & place.exposed_communication
        return (asking - Intervals.of(sending.start_ns, sending.end_ns)).total_ns

    each = [of_place(place) / place.units for place in run.host_places]
    return int(float(np.mean(each)) * (1 - 1 / per_step)) if each and per_step > 1 else 0


def evened_ns(run: Run, matched: Skew) -> int:
    """Waiting that goes with the meetings, a step: in one, the rank that waited least in a step waits no more at all.

    The others wait so much less: by as much the last one came later than it would have without waiting itself.
    """
    place = next(each for each in run.places if each.rank == matched.ranks[0])
    waiting = np.where(matched.taking_part, matched.duration_ns - matched.shortest_ns, 0)
    step = np.searchsorted(place.steps.even_bounds, place.recorded_collectives.start_ns[matched.rows[0]], side="right")
    each = np.stack([np.bincount(step, weights=own, minlength=step.max(initial=0) + 1) for own in waiting])
    return int(each.min(axis=0).sum() / place.units)
