"""Who waits for whom at collectives, among the ranks that were recorded?

A collective ends for all ranks together, so the rank that is in it for the shortest time came last, and the others'
extra time is waiting. That needs no common clock. Collectives are matched by their order within kind and group,
and only where every rank recorded equally many. A send or receive may end for one rank alone; NCCL runs all-to-alls
with the same kernels, and those are told by the range in which they were launched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.links import launch_rows
from perfdoctor.timeline.model import UNKNOWN, Frame, Ints

#: Kinds in which every rank takes part and that end together.
_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier")
_ALL_TO_ALL_RANGE = re.compile(r"^nccl:.*all_?to_?all", re.IGNORECASE)


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
    def caused_ns(self) -> Ints:
        """Per rank: by how much it came after the middle rank, in the collectives in which it came last.

        Weighed so, ranks that come together but for some ns do not count as late by turns.
        """
        late_by = np.median(self.duration_ns, axis=0) - self.duration_ns.min(axis=0)
        caused = np.bincount(self.duration_ns.argmin(axis=0), weights=late_by, minlength=len(self.ranks))
        return caused.astype(np.int64)

    @property
    def waiting_share(self) -> float:
        """How much of all ranks' time in collectives is waiting."""
        return float(self.waiting_ns.sum() / max(self.duration_ns.sum(), 1))

    @property
    def others(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """One bool a rank: all but the late one, which waits for nobody."""
        return np.array([rank != self.late_rank for rank in self.ranks])

    @property
    def cost_of_late_rank_ns(self) -> int:
        """How much earlier collectives would start if the last rank came when the middle one does."""
        return int(self.caused_ns.sum())


def skew(run: Run) -> Skew | None:
    """Collectives matched across ranks inside the windows; None with one rank, or where they do not match."""
    places = [place for place in run.places if len(place.collectives)]
    if len(places) < 2 or len({place.rank for place in places}) != len(places):
        return None
    found = [_collectives(place) for place in places]
    columns = [_matched([each.get(key) for each in found]) for key in found[0]]
    columns = [column for column in columns if column.shape[1]]
    if not columns:
        return None
    return Skew(tuple(place.rank for place in places), np.concatenate(columns, axis=1))


Own = tuple[Ints, np.ndarray[tuple[int], np.dtype[np.bool_]]]


def _matched(ranks: Sequence[Own | None]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The durations of one kind and group, a row a rank: those that most ranks have in their window.

    Matched over the whole recording, since a collective may reach over the edge of a window on one rank only; within
    the windows where the recordings do not hold equally many.
    """
    known = [own for own in ranks if own is not None]
    if len(known) < len(ranks):
        return np.empty((len(ranks), 0), np.int64)
    if len({durations.size for durations, _ in known}) > 1:
        known = [(durations[inside], inside[inside]) for durations, inside in known]
    if len({durations.size for durations, _ in known}) > 1:
        return np.empty((len(ranks), 0), np.int64)
    inside = np.mean([inside for _, inside in known], axis=0) >= 0.5
    return np.stack([durations for durations, _ in known])[:, inside]


def _collectives(place: Place) -> dict[tuple[str, str], Own]:
    """How long each collective of the recording took, in order, by kind and group; and is it in the window?"""
    frame = place.recorded_collectives
    kinds = np.array(list(frame.text("kind")), dtype=object)
    kinds[_launched_as_all_to_all(place, frame)] = "all_to_all"
    groups = frame.text("group")
    inside = place.window.overlap_ns(frame.start_ns, frame.end_ns) > 0
    found: dict[tuple[str, str], Own] = {}
    for kind in _TOGETHER:
        for group in dict.fromkeys(groups.take(kinds == kind)):
            rows = (kinds == kind) & groups.equals(group)
            found[kind, group] = frame.duration_ns[rows], inside[rows]
    return found


def _launched_as_all_to_all(place: Place, frame: Frame) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """One bool a row: a send_recv kernel that an all-to-all launched?"""
    calls = place.timeline.calls
    ranges = place.timeline.ranges.of(rank=place.rank)
    ranges = ranges.take(ranges.name.matches(_ALL_TO_ALL_RANGE))
    call = launch_rows(frame, calls)
    is_pair = frame.text("kind").equals("send_recv")
    if not len(ranges) or not len(calls):
        return np.zeros(len(frame), dtype=bool)
    at = calls.start_ns[np.maximum(call, 0)]
    inside = Intervals.of(ranges.start_ns, ranges.end_ns).overlap_ns(at, at + 1) > 0
    launched: np.ndarray[tuple[int], np.dtype[np.bool_]] = is_pair & (call != UNKNOWN) & inside
    return launched
