"""How much of a server's work is prefill, and how much is decoding, as its ranges name it?"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.model.host_rows import outermost
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launches
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.vocabulary.names.serving import phase


class Phase(Struct, frozen=True):
    """`name`: prefill, decode or mixed. `share`: of the busy time of which the phase is known, mean over all places."""

    name: str
    iterations: int
    share: float


def phases(run: Run) -> tuple[Phase, ...]:
    """The phases of the iterations that are named, the largest share first; () where none is.

    An iteration's time is that of the work that was launched in its range, on whatever thread of the rank.
    """
    every = [known for place in run.places if place.device is not None and (known := _of_place(place))]
    names = dict.fromkeys(name for known in every for name in known)
    whole_ns = sum(ns for known in every for _, ns in known.values())
    found = []
    for name in names:
        own = [known.get(name, (0, 0)) for known in every]
        found.append(Phase(name, max(count for count, _ in own), sum(ns for _, ns in own) / max(whole_ns, 1)))
    return tuple(sorted(found, key=lambda each: -each.share))


def _of_place(place: Place) -> dict[str, tuple[int, int]]:
    """By phase: how many iterations, and the busy time of what was launched in them, in ns."""
    ranges = place.timeline.ranges.of(rank=place.rank)
    named = np.array(ranges.name.classified(phase), dtype=object)[ranges.name.codes]
    launched, work, found = launches(place), place.work, {}
    for name in dict.fromkeys(each for each in named.tolist() if each):
        rows = outermost(ranges.take(named == name))
        inside = launched.within(rows.intervals)
        busy = Intervals.of(work.start_ns[inside], work.end_ns[inside])
        if busy:
            found[name] = (len(rows), busy.total_ns)
    return found
