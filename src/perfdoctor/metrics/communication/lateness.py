"""What makes a rank late? What it spends more time on than the other ranks, between collectives that all took part in.

All ranks leave a collective together, so from the end of the first one to the end of the last one the same time passes
on each, whatever their clocks say. Who waits less there has more of something else. What it did just before it came
late shows nothing: it may compute like all others, and have been held up long before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perfdoctor.metrics.communication.skew import Skew
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN


def between_collectives(place: Place, matched: Skew) -> Intervals:
    """From the end of this rank's first matched collective to the end of its last; the window where it has one."""
    rows = matched.rows[matched.ranks.index(place.rank)]
    ends = place.recorded_collectives.end_ns[rows[rows != UNKNOWN]]
    if ends.size < 2 or ends.min() == ends.max():
        return place.window
    return Intervals.single(int(ends.min()), int(ends.max())) & place.window


def parts_ns(place: Place, matched: Skew) -> dict[str, int]:
    """Its activities there except communication: computing, copying, idle time by cause; in ns."""
    there = between_collectives(place, matched)
    parts = {"compute": place.compute, "copies": place.exposed_copies, **place.idle_causes}
    return {name: (pieces & there).total_ns for name, pieces in parts.items()}


def excess_ns(places: Sequence[Place], matched: Skew) -> Mapping[int, Mapping[str, int]]:
    """By rank and activity: how much more time than the median of the other ranks, in ns, where it is more."""
    parts = {place.rank: parts_ns(place, matched) for place in places}
    return {
        rank: {name: max(round(own - _middle(parts, rank, name)), 0) for name, own in mine.items()}
        for rank, mine in parts.items()
    }


def _middle(parts: Mapping[int, Mapping[str, int]], but: int, name: str) -> float:
    return float(np.median([each[name] for rank, each in parts.items() if rank != but]))


def made_late_by(places: Sequence[Place], matched: Skew) -> Mapping[str, float]:
    """What late ranks did instead of coming, as shares; a rank counts by how long others waited for it."""
    excess = excess_ns(places, matched)
    caused = dict(zip(matched.ranks, matched.caused_ns.tolist(), strict=True))
    total = {
        name: sum(caused[rank] * own.get(name, 0) / max(sum(own.values()), 1) for rank, own in excess.items())
        for name in next(iter(excess.values()), {})
    }
    whole = max(sum(total.values()), 1)
    return {name: part / whole for name, part in total.items()}
