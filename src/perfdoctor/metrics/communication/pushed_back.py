"""What of the time in collectives that no compute hides is there because a rank came late?

The wait itself may be hidden, and still end later all that is queued behind it:

```
compute      │ backward ‥‥‥‥‥‥‥‥‥‥‥‥‥‥‥‥‥‥ │
collectives        │ wait │ 1 │ 2 ‥‥ │ 3 ‥‥ │      in time: │ 1 │ 2 ‥‥ │   │ 3 ‥‥ │
                                     └ exposed ┘                            └ exp. ┘
```

Without the wait such a chain ends so much earlier, but its last collective begins no sooner than it was asked for,
which is taken for the moment when it began: the part of its transfer without compute beside it stays exposed.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import Ints


def pushed_back_ns(starts: Ints, ends: Ints, waits: Intervals, exposed: Intervals, queued_within_ns: int) -> int:
    """How much of `exposed` goes with these waits, in ns.

    `starts` and `ends`: of the collectives, in any order; `queued_within_ns`: what starts so soon had been queued.
    """
    if not starts.size or not waits:
        return 0
    starts, ends = np.sort(starts), np.sort(ends)
    first, last = _chains(starts, ends, queued_within_ns)
    begin, end = starts[first], ends[last]
    waited = waits.overlap_ns(begin, end)
    beside_compute = (end - starts[last]) - exposed.overlap_ns(starts[last], end)
    transfer = (end - starts[last]) - waits.overlap_ns(starts[last], end)
    stays = np.maximum(transfer - beside_compute, 0)
    seen = (waits & exposed).overlap_ns(begin, end)
    behind = exposed.overlap_ns(_first_wait(waits, begin, end), end) - stays
    return int(np.maximum(np.minimum(waited, behind), seen).sum())


def _chains(starts: Ints, ends: Ints, queued_within_ns: int) -> tuple[Ints, Ints]:
    """The first and the last of the collectives, both in order, of each chain without a pause."""
    reach = np.maximum.accumulate(ends)
    breaks = np.flatnonzero(starts[1:] - reach[:-1] > queued_within_ns)
    return np.append(0, breaks + 1), np.append(breaks, starts.size - 1)


def _first_wait(waits: Intervals, begin: Ints, end: Ints) -> Ints:
    """When the first of these waits begins that is not over at `begin`; `end` where there is none before it."""
    place = np.searchsorted(waits.ends, begin, side="right")
    found = np.append(waits.starts, np.iinfo(np.int64).max)[place]
    first: Ints = np.clip(found, begin, end)
    return first
