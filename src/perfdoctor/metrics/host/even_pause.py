"""Does a host stand still again and again, each time for equally long, as a sleep, a timer or a fixed job makes it?"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.behind_idle import host_rows
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place

#: Shorter stretches than this share of the longest one are not of its kind.
_ALIKE = 0.5


class Pause(Struct, frozen=True, eq=False):
    """Stretches in which the host begins no op and no call: their median in ns, and how far they lie apart, as a share."""

    ns: int
    apart: float
    pieces: Intervals


def pause_of(place: Place, idle: Intervals) -> Pause | None:
    """The pauses in these idle stretches; None where there are fewer than two, or not as many as steps.

    Up to the first op or call of the stretch: it ends the pause. What the edges of the window cut off is not counted.
    """
    begun = np.sort(host_rows(place, ("ops", "calls")).start_ns)
    first = np.append(begun, np.iinfo(np.int64).max)[np.searchsorted(begun, idle.starts)]
    took = np.minimum(idle.ends, first) - idle.starts
    edges = place.window.starts[0], place.window.ends[-1]
    whole = (idle.starts > edges[0]) & (idle.ends < edges[1])
    if not whole.any():
        return None
    long = whole & (took >= _ALIKE * took[whole].max())
    if not 2 <= np.count_nonzero(long) <= place.units or np.count_nonzero(long) < place.units - 1:
        return None
    middle = float(np.median(took[long]))
    pieces = Intervals(idle.starts[long], idle.starts[long] + took[long])
    return Pause(int(middle), float(took[long].max() - took[long].min()) / middle, pieces)
