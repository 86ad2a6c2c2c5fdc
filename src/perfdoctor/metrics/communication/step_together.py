"""What does the step of all ranks win when some of them have less to do? At most what each waits less, or does less.

A collective starts for all when the last rank has come. Where that is one of those that get faster, the others have
waited for it, and win of that waiting; a rank that waits for no other wins what it has less to do itself. None can win
more of its step than both together, and they win alike: the job wins what the rank does that has least of both.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfdoctor.metrics.communication.skew import Skew, skew
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask

#: By (rank, device), in ns a step.
ByPlace = Mapping[tuple[int, int], float]


def won_ns(run: Run, less_ns: ByPlace) -> float:
    """How much shorter a step gets where these places have so much less to do in each, in ns.

    Where no rank is known to wait (one rank, no collectives that match) each wins by itself: the mean over all places.
    """
    matched = skew(run)
    if matched is None:
        return sum(less_ns.values()) / max(len(run.places), 1)
    faster = np.array([rank in {rank for rank, _ in less_ns} for rank in matched.ranks])
    waiting = _waiting_ns(run, matched, faster)
    own = [max((ns for (of_rank, _), ns in less_ns.items() if of_rank == rank), default=0.0) for rank in matched.ranks]
    return float(min(waited + less for waited, less in zip(waiting, own, strict=True)))


def _waiting_ns(run: Run, matched: Skew, faster: Mask) -> list[float]:
    """Per rank: what it waits for those that get faster, a step; no limit where it never meets any of them."""
    columns = faster[matched.last]
    there = matched.taking_part[:, columns]
    waited = np.where(there, (matched.duration_ns - matched.shortest_ns)[:, columns], 0).sum(axis=1)
    meets: Mask = (there.sum(axis=1) > 0) | (not columns.any())
    units = {place.rank: place.units for place in run.places}
    return [
        ns / units[rank] if does else float("inf")
        for rank, ns, does in zip(matched.ranks, waited.tolist(), meets.tolist(), strict=True)
    ]
