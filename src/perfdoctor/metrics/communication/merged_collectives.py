"""What would ranks save by one collective a step that carries all their data, instead of many?

For runs without a GPU, where threads of the host send what the training threads wait for.
"""

from __future__ import annotations

from math import prod

import msgspec
import numpy as np

from perfdoctor.metrics.accounting.host_place import HostPlace, host_places
from perfdoctor.metrics.communication.hideable import SHARDED, SUMS_IN_LAYERS
from perfdoctor.metrics.communication.skew import Skew
from perfdoctor.metrics.program import facts
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import BEYOND, UNKNOWN, Ints
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Job, Run

#: Bytes of the widest number, float64.
_WIDEST = 8
_SUMS = frozenset({"all_reduce", "reduce"})


def can_be_merged(run: Run) -> bool:
    """Are all of a step's collectives sums that it needs at its end alone? Those of layers are needed one by one."""
    kinds = {kind for place in run.places for kind in place.collectives.text("kind")}
    return kinds <= _SUMS and not facts(run) & (SHARDED | SUMS_IN_LAYERS)


@once_per_place
def most_bytes(place: HostPlace) -> Ints:
    """What each of `place.recorded_collectives` carries at most, by the shapes that its call was given; UNKNOWN where
    that was not recorded. The type of the numbers is not: they have eight bytes at most.
    """
    shapes = place.asks.text("input_shapes")
    if not len(shapes):
        return np.full(len(place.recorded_collectives), UNKNOWN, np.int64)
    return np.array([_most_bytes(each) for each in shapes.values], np.int64)[shapes.codes]


def _most_bytes(shapes: str) -> int:
    """The bytes of the first input, a tensor or a list of them: `[[[64, 128]], [], …]`; UNKNOWN of other text,
    and of more than there can be.
    """
    try:
        first, *_ = msgspec.json.decode(shapes, type=list[list[int | list[int]]])
    except (msgspec.DecodeError, ValueError):
        return UNKNOWN
    tensors = [each for each in first if isinstance(each, list)]
    own = [side for side in first if isinstance(side, int)]
    carried = _WIDEST * (sum(prod(each) for each in tensors) if tensors else prod(own))
    return carried if first and 0 <= carried < BEYOND else UNKNOWN


def messages_ns(run: Job[JobPlace], matched: Skew, quick: float) -> int:
    """How much longer a step's messages take than one message with all of their data would, in ns.

    What a message takes undisturbed is a low quantile (`quick`) of its times over all steps. The fixed cost of a
    message is the same quantile over the messages of a step, the quickest of which carry next to nothing: one merged
    message pays it once. What disturbs messages beyond that is shared evenly among them: one message keeps one part.
    """
    each = matched.shortest_ns
    if not each.size:
        return 0
    units, step = run.places[0].units, _steps(run, matched)
    place = np.arange(step.size) - np.searchsorted(step, step, side="left")  # its number among those of its step
    undisturbed = np.array([np.quantile(each[place == number], quick) for number in np.unique(place)])
    price = float(np.quantile(undisturbed, quick))
    unrest = max(each.sum() / units - undisturbed.sum(), 0)
    merged = price + np.maximum(undisturbed - price, 0).sum() + unrest / max(each.size / units, 1)
    return max(int(each.sum() / units - merged), 0)


def _steps(run: Job[JobPlace], matched: Skew) -> Ints:
    """The step of the first rank in which each collective began."""
    place = next(each for each in run.places if each.rank == matched.ranks[0])
    begun = place.recorded_collectives.start_ns[matched.rows[0]]
    steps: Ints = np.searchsorted(place.steps.even_bounds, begun, side="right")
    return steps


def asking_ns(run: Run, matched: Skew) -> int:
    """How long training threads start a step's messages, or wait while nothing is sent, for all but one; in ns."""
    per_step = matched.shortest_ns.size / run.places[0].units
    each = []
    for place in host_places(run):
        asking = (place.own_communication | place.handed_over) & place.exposed_communication
        each.append((asking - place.recorded_collectives.intervals).total_ns / place.units)
    return int(float(np.mean(each)) * (1 - 1 / per_step)) if each and per_step > 1 else 0


def evened_ns(run: Job[JobPlace], matched: Skew) -> int:
    """Waiting saved when a step's collectives become one: the rank that waited least in the step does not wait at all.

    The others wait that much less, since the rank that comes last has no longer waited itself.
    """
    step = _steps(run, matched)
    each = np.stack([np.bincount(step, weights=own, minlength=step.max(initial=0) + 1) for own in matched.waited_ns])
    return int(each.min(axis=0).sum() / run.places[0].units)
