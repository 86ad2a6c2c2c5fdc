"""What makes a rank late, and what is there because of it?

All ranks leave a collective together, so from the end of the first one to the end of the last one the same time passes
on each, whatever their clocks say. Who waits less there has more of something else. What it did just before it came
late shows nothing: it may compute like all others, and have been held up long before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.metrics.communication.skew import Skew, skew
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats, Ints, Mask

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
    """For each of `matched.ranks` the ns that it came late by its own doing.

    Who waited for a late rank in one group comes late to the next one as well: there he has spent no more time on
    anything but communication than others have. Where all ranks meet in each collective they leave it together.
    """
    if not matched.has_several_groups:
        return matched.caused_ns
    excess = excess_ns(places, matched)
    own = np.array([sum(excess.get(rank, {}).values()) for rank in matched.ranks], np.int64)
    return np.minimum(matched.caused_ns, own)


def beyond_chance_ns(own_ns: Ints) -> Ints:
    """For each rank the ns of its own lateness beyond that by which many ranks differ by chance.

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


def pushed_back_ns(starts: Ints, ends: Ints, waits: Intervals, exposed: Intervals, queued_within_ns: int) -> int:
    """How much of the exposed time in collectives is there because a rank came late, in ns.

    `starts` and `ends`: of the collectives, in any order; `queued_within_ns`: what starts so soon had been queued. The
    wait itself may be hidden, and still end later all that is queued behind it:

    ```
    compute      │ backward ‥‥‥‥‥‥‥‥‥‥‥‥‥‥‥‥‥‥ │
    collectives        │ wait │ 1 │ 2 ‥‥ │ 3 ‥‥ │      in time: │ 1 │ 2 ‥‥ │   │ 3 ‥‥ │
                                         └ exposed ┘                            └ exp. ┘
    ```

    Without the wait such a chain ends so much earlier, but its last collective begins no sooner than it was asked for,
    which is taken for the moment when it began: the part of its transfer without compute beside it stays exposed.
    """
    if not starts.size or not waits:
        return 0
    starts, ends = np.sort(starts), np.sort(ends)
    # The first and the last collective of each chain without a pause.
    breaks = np.flatnonzero(starts[1:] - np.maximum.accumulate(ends)[:-1] > queued_within_ns)
    first, last = np.append(0, breaks + 1), np.append(breaks, starts.size - 1)
    begin, end = starts[first], ends[last]
    waited = waits.overlap_ns(begin, end)
    beside_compute = (end - starts[last]) - exposed.overlap_ns(starts[last], end)
    transfer = (end - starts[last]) - waits.overlap_ns(starts[last], end)
    stays = np.maximum(transfer - beside_compute, 0)
    seen = (waits & exposed).overlap_ns(begin, end)
    # When the chain's first wait begins that is not over at its begin; its end where there is none.
    open_wait = np.append(waits.starts, np.iinfo(np.int64).max)[np.searchsorted(waits.ends, begin, side="right")]
    behind = exposed.overlap_ns(np.clip(open_wait, begin, end), end) - stays
    return int(np.maximum(np.minimum(waited, behind), seen).sum())


def won_ns(run: Run, less_ns: Mapping[tuple[int, int], float]) -> float:
    """How much shorter the step of all ranks gets where some have less to do, in ns.

    `less_ns`: by (rank, device), a step. A collective starts for all when the last rank has come. A rank saves at most
    what it has less to do itself, and what it waits for the ranks that get faster. The steps of all ranks are of one
    length, so the job saves what the rank does for which both together are least. Where no rank is known to wait (one
    rank, no collectives that match) each wins by itself: the mean over all places.
    """
    matched = skew(run)
    if matched is None:
        return sum(less_ns.values()) / max(len(run.places), 1)
    faster = np.array([rank in {rank for rank, _ in less_ns} for rank in matched.ranks])
    waiting = _waiting_ns(run, matched, faster)
    own = [max((ns for (of_rank, _), ns in less_ns.items() if of_rank == rank), default=0.0) for rank in matched.ranks]
    return float(min(waited + less for waited, less in zip(waiting, own, strict=True)))


def _waiting_ns(run: Run, matched: Skew, faster: Mask) -> list[float]:
    """For each rank the ns a step that it waits for those that get faster; infinite where they share no collective."""
    columns = faster[matched.last]
    there = matched.taking_part[:, columns]
    waited = matched.waited_ns[:, columns].sum(axis=1)
    meets: Mask = (there.sum(axis=1) > 0) | (not columns.any())
    units = {place.rank: place.units for place in run.places}
    return [
        ns / units[rank] if does else float("inf")
        for rank, ns, does in zip(matched.ranks, waited.tolist(), meets.tolist(), strict=True)
    ]
