"""Who waits for whom at collectives, among the ranks that were recorded?

A collective ends for all ranks together, so the rank that is in it for the shortest time came last, and the others'
extra time is waiting. That needs no common clock. Collectives are matched by their order within kind and group,
and only where every rank recorded equally many. A send or receive may end for one rank alone; NCCL runs all-to-alls
with the same kernels, and those are told by the range in which they were launched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.links import launch_rows
from perfdoctor.timeline.model import UNKNOWN, Ints

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
    durations = [_durations(place) for place in places]
    matched = [
        key for key, of_first in durations[0].items() if all(_size(each, key) == of_first.size for each in durations)
    ]
    columns = [np.stack([each[key] for each in durations]) for key in matched]
    if not columns:
        return None
    return Skew(tuple(place.rank for place in places), np.concatenate(columns, axis=1))


def _size(durations: Mapping[tuple[str, str], Ints], key: tuple[str, str]) -> int:
    return durations[key].size if key in durations else 0


def _durations(place: Place) -> dict[tuple[str, str], Ints]:
    """How long each collective took, in order, by kind and group."""
    frame = place.collectives
    kinds = np.array(list(frame.text("kind")), dtype=object)
    kinds[_launched_as_all_to_all(place)] = "all_to_all"
    groups = frame.text("group")
    found: dict[tuple[str, str], Ints] = {}
    for kind in _TOGETHER:
        for group in dict.fromkeys(groups.take(kinds == kind)):
            found[kind, group] = frame.duration_ns[(kinds == kind) & groups.equals(group)]
    return found


def _launched_as_all_to_all(place: Place) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """One bool a row: a send_recv kernel that an all-to-all launched?"""
    frame, calls = place.collectives, place.timeline.calls
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
