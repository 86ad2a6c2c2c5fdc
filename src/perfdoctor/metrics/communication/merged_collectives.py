"""What would ranks win that met once a step, with all they have to say, instead of many times?

Of a run without a GPU, where threads of the host send what the training threads wait for.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.accounting.host_place import HostPlace, host_places
from perfdoctor.metrics.communication.skew import Skew
from perfdoctor.model.columns import Ints
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.run import Run


def messages_ns(run: Run, matched: Skew, quick: float) -> int:
    """What a step's messages take beyond what one with all they carry would.

    Among the same message of all steps the quickest (`quick`: which share of them) show what it takes where nothing
    disturbs it; and among the messages of a step the quickest carry next to nothing: that is a message's price, which
    each pays. Whatever else disturbs them comes as often as they do, once.
    """
    each = matched.shortest_ns
    if not each.size:
        return 0
    units, place = run.places[0].units, _of_step(run, matched)
    undisturbed = np.array([np.quantile(each[place == number], quick) for number in np.unique(place)])
    price = float(np.quantile(undisturbed, quick))
    unrest = max(each.sum() / units - undisturbed.sum(), 0)
    merged = price + np.maximum(undisturbed - price, 0).sum() + unrest / max(each.size / units, 1)
    return max(int(each.sum() / units - merged), 0)


def _of_step(run: Run, matched: Skew) -> Ints:
    """Each collective's number among those of its step."""
    step = _steps(run, matched)
    first = np.searchsorted(step, step, side="left")
    return np.arange(step.size, dtype=np.int64) - first


def _steps(run: Run, matched: Skew) -> Ints:
    """In which step of the first rank each collective began."""
    place = next(each for each in run.places if each.rank == matched.ranks[0])
    begun = place.recorded_collectives.start_ns[matched.rows[0]]
    steps: Ints = np.searchsorted(place.steps.even_bounds, begun, side="right")
    return steps


def asking_ns(run: Run, matched: Skew) -> int:
    """What training threads do for a step's messages, and wait for while nothing is sent, for all but one of them."""
    per_step = matched.shortest_ns.size / run.places[0].units

    def of_place(place: HostPlace) -> int:
        sending = place.recorded_collectives
        asking = (place.own_communication | place.handed_over) & place.exposed_communication
        return (asking - Intervals.of(sending.start_ns, sending.end_ns)).total_ns

    each = [of_place(place) / place.units for place in host_places(run)]
    return int(float(np.mean(each)) * (1 - 1 / per_step)) if each and per_step > 1 else 0


def evened_ns(run: Run, matched: Skew) -> int:
    """Waiting saved when a step's collectives become one: the rank that waited least in the step does not wait at all.

    The others wait so much less: by as much the last one came later than it would have without waiting itself.
    """
    waiting = np.where(matched.taking_part, matched.duration_ns - matched.shortest_ns, 0)
    step = _steps(run, matched)
    each = np.stack([np.bincount(step, weights=own, minlength=step.max(initial=0) + 1) for own in waiting])
    return int(each.min(axis=0).sum() / run.places[0].units)
