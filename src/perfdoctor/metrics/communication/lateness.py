"""What makes a rank late? What it spends more time on than the other ranks, between collectives that all took part in.

All ranks leave a collective together, so from the end of the first one to the end of the last one the same time passes
on each, whatever their clocks say. Who waits less there has more of something else. What it did just before it came
late shows nothing: it may compute like all others, and have been held up long before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.metrics.communication.skew import Skew
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import JobPlace
from perfdoctor.model.timeline import Floats, Ints

#: What fewer ranks differ by chance is little in sum, and a slow machine may be a quarter of them.
_MANY = 64
_QUARTILES, _FENCE = (0.25, 0.75), 3.0


def between_collectives(place: JobPlace, matched: Skew) -> Intervals:
    """From the end of this rank's first matched collective to the end of its last; the window where it has one."""
    ends = place.recorded_collectives.end_ns[matched.rows_of(matched.number(place.rank))]
    if ends.size < 2 or ends.min() == ends.max():
        return place.window
    return Intervals.single(int(ends.min()), int(ends.max())) & place.window


@once_per_place
def parts_ns(place: JobPlace, matched: Skew) -> dict[str, int]:
    """Ns of the place's activities between its matched collectives: compute, copies, and idle time by cause."""
    there = between_collectives(place, matched)
    parts = {"compute": place.compute, "copies": place.exposed_copies, **place.idle_causes}
    return {name: (pieces & there).total_ns for name, pieces in parts.items()}


def excess_ns(places: Sequence[JobPlace], matched: Skew) -> Mapping[int, Mapping[str, int]]:
    """By rank and activity: by how many ns its time exceeds the median of the other ranks; 0 where it does not."""
    parts = [parts_ns(place, matched) for place in places]
    names = list(parts[0]) if parts else []
    own = np.array([[each[name] for name in names] for each in parts], np.int64)
    more = np.maximum(np.rint(own - _middle_of_others(own)), 0).astype(np.int64).tolist()
    return {place.rank: dict(zip(names, each, strict=True)) for place, each in zip(places, more, strict=True)}


def _middle_of_others(own: npt.NDArray[np.int64]) -> Floats:
    """For each rank (a line) and activity (a column) the median of the other ranks; its own where there are none."""
    others = len(own) - 1
    if others < 1:
        return own.astype(np.float64)
    order = np.argsort(own, axis=0, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(len(own))[:, None], axis=0)
    ascending = np.take_along_axis(own, order, axis=0)

    def nth(number: int) -> npt.NDArray[np.int64]:
        """The one of this number among the others: one further where the rank itself stands before it."""
        found: npt.NDArray[np.int64] = np.take_along_axis(ascending, number + (place <= number), axis=0)
        return found

    middle: Floats = np.mean([nth((others - 1) >> 1), nth(others >> 1)], axis=0)  # the two in the middle, or one twice
    return middle


def own_lateness_ns(places: Sequence[JobPlace], matched: Skew) -> Ints:
    """Per rank of `matched.ranks`: by how much it came late by its own doing.

    Who waited for a late rank in one group comes late to the next one as well: there he has spent no more time on
    anything but communication than others have. Where all ranks meet in each collective they leave it together.
    """
    if not matched.has_several_groups:
        return matched.caused_ns
    excess = excess_ns(places, matched)
    own = np.array([sum(excess.get(rank, {}).values()) for rank in matched.ranks], np.int64)
    return np.minimum(matched.caused_ns, own)


def beyond_chance_ns(own_ns: Ints) -> Ints:
    """Of each rank's own lateness what exceeds that by which many ranks differ by chance.

    Every rank is a little late somewhere: of ten thousand that is more in sum than one slow rank is. What is three
    distances of the quartiles above the upper one is no chance (Tukey, Exploratory Data Analysis, 1977).
    """
    if own_ns.size < _MANY:
        return own_ns
    lower, upper = np.quantile(own_ns, _QUARTILES)
    return np.maximum(own_ns - round(float(upper + _FENCE * (upper - lower))), 0)


def explained_share(own_ns: Ints, matched: Skew) -> float:
    """How much of what ranks wait goes back to a rank's own doing; the rest to slow transfers of some group.

    The latest rank by its own doing, over the latest one at all: what lies between came to it through its collectives.
    """
    return min(float(own_ns.max(initial=0)) / max(int(matched.caused_ns.max(initial=0)), 1), 1.0)


def made_late_by(places: Sequence[JobPlace], matched: Skew) -> Mapping[str, float]:
    """What late ranks did instead of coming, as shares; a rank counts by how long others waited for it."""
    excess = excess_ns(places, matched)
    caused = dict(zip(matched.ranks, matched.caused_ns.tolist(), strict=True))
    total = {
        name: sum(caused[rank] * own.get(name, 0) / max(sum(own.values()), 1) for rank, own in excess.items())
        for name in next(iter(excess.values()), {})
    }
    whole = max(sum(total.values()), 1)
    return {name: part / whole for name, part in total.items()}
