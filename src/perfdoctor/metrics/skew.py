"""Who waits for whom at collectives, among the ranks that were recorded?

A collective ends for all ranks together, so the rank that is in it for the shortest time came last, and the others'
extra time is waiting. That needs no common clock. Collectives are matched by their order within kind and group, and
only where every rank recorded equally many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run
from perfdoctor.timeline.model import Ints

#: Kinds in which every rank takes part and ends together; of a send and a receive that is not known.
_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier", "send_recv")


@dataclass(frozen=True)
class Skew:
    """Times of matched collectives: `duration_ns[i, k]` is collective k on the i-th of `ranks`."""

    ranks: tuple[int, ...]
    duration_ns: np.ndarray[tuple[int, int], np.dtype[np.int64]]

    @property
    def waiting_ns(self) -> Ints:
        """Per rank: how long it stood in collectives that the last rank had not entered yet."""
        waiting: Ints = (self.duration_ns - self.duration_ns.min(axis=0)).sum(axis=1)
        return waiting

    @property
    def transfer_ns(self) -> int:
        """How long the collectives took once everybody was there."""
        return int(self.duration_ns.min(axis=0).sum())

    @property
    def late_rank(self) -> int:
        """The rank the others wait for most: the one that waits least itself."""
        return self.ranks[int(self.waiting_ns.argmin())]

    @property
    def last_count(self) -> Ints:
        """Per rank: in how many collectives it came last."""
        return np.bincount(self.duration_ns.argmin(axis=0), minlength=len(self.ranks)).astype(np.int64)

    @property
    def cost_of_late_rank_ns(self) -> int:
        """How much earlier collectives would start if the last rank came when the middle one does."""
        middle = np.median(self.duration_ns, axis=0)
        return int((middle - self.duration_ns.min(axis=0)).sum())


def skew(run: Run) -> Skew | None:
    """Collectives matched across ranks inside the windows; None with one rank, or where they do not match."""
    places = [place for place in run.places if len(place.collectives)]
    if len(places) < 2 or len({place.rank for place in places}) != len(places):
        return None
    columns: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    per_place = [{kind: _durations(place, kind) for kind in _TOGETHER} for place in places]
    for kind in _TOGETHER:
        durations = [kinds[kind] for kinds in per_place]
        if durations[0].size and len({each.size for each in durations}) == 1:
            columns.append(np.stack(durations))
    if not columns:
        return None
    return Skew(tuple(place.rank for place in places), np.concatenate(columns, axis=1))


def _durations(place: Place, kind: str) -> Ints:
    frame = place.collectives
    rows = frame.take(frame.text("kind").equals(kind))
    return rows.duration_ns
