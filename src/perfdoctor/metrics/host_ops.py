"""How much of a step without a GPU goes into ops so short that asking for them is the larger part?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.host_place import HostPlace, outermost
from perfdoctor.metrics.optimizer import host_updates
from perfdoctor.timeline.intervals import Intervals


@dataclass(frozen=True)
class ShortOps:
    """`count` outermost ops of the training thread; `time` covers them and the Python between two of them."""

    count: int
    total_ns: int
    time: Intervals


def short_ops(place: HostPlace, shorter_than_ns: float) -> ShortOps:
    """Those outside the optimizer's updates, the loader and collectives, in the window."""
    rows = place.rows("ops")
    rows = outermost(rows.take(place.window.overlap_ns(rows.start_ns, rows.end_ns) > 0))
    updates, _ = host_updates(place)
    start, end = rows.start_ns, rows.end_ns
    works = (place.compute - updates).overlap_ns(start, end) == end - start
    short = works & (end - start < shorter_than_ns)
    pair = short[:-1] & short[1:] & (rows["thread"][:-1] == rows["thread"][1:]) & (start[1:] > end[:-1])
    between = Intervals.of(end[:-1][pair], start[1:][pair]) & place.idle_causes["host_work"]
    total_ns = int((end - start)[short].sum())
    return ShortOps(
        int(np.count_nonzero(short)), total_ns, Intervals.of(start[short], end[short]) | (between - updates)
    )
