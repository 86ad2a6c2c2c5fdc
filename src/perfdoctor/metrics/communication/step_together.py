"""How much shorter does the step of all ranks get when some of them have less to do?

A collective starts for all when the last rank has come. A rank saves at most what it has less to do itself, and what it
waits for the ranks that get faster. The steps of all ranks are of one length, so the job saves what the rank does for
which both together are least.
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
