"""Does a host stand still again and again, each time for equally long, as a sleep, a timer or a fixed job makes it?"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.behind_idle import host_rows
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Frame

#: Shorter stretches than this share of the longest one are not of its kind. For most of one the device stands idle: it
#: may have had work in its queue. Other threads do next to nothing.
_ALIKE, _IDLE, _BUSY = 0.5, 0.5, 0.02


class Pause(Struct, frozen=True, eq=False):
    """Stretches without an op or a call: their median in ns, and how far they lie apart, as a share of it."""

    ns: int
    apart: float
    pieces: Intervals


def pause_of(place: Place, idle: Intervals) -> Pause | None:
    """The longest pauses of a thread for which the device is in this idle time; None where they are not one a step.

    What the edges of the window cut off is not counted: at least two are to be whole, and all but one.
    """
    rows = host_rows(place, ("ops", "calls"))
    found = [_of_thread(place, idle, rows, thread) for thread in np.unique(rows["thread"]).tolist()]
    return max((each for each in found if each is not None), key=lambda each: each.ns, default=None)


def _of_thread(place: Place, idle: Intervals, rows: Frame, thread: int) -> Pause | None:
    still = place.window - rows.take(rows["thread"] == thread).intervals
    starts, ends, took = still.starts, still.ends, still.durations_ns
    whole = (starts > place.window.starts[0]) & (ends < place.window.ends[-1])
    whole &= idle.overlap_ns(starts, ends) >= _IDLE * took
    whole &= rows.intervals.overlap_ns(starts, ends) <= _BUSY * took
    long = whole & (took > _ALIKE * took[whole].max(initial=0))
    if not max(place.units - 1, 2) <= np.count_nonzero(long) <= place.units:
        return None
    middle = float(np.median(took[long]))
    return Pause(int(middle), float(np.ptp(took[long])) / middle, Intervals(starts[long], ends[long]))
