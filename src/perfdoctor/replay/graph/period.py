"""Which steps are simulated? Whole ones, as they ran on the main stream, with all that was launched in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.model.launches import launches
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Ints

#: As many of a step's first pieces of work may begin at the same moment.
_TOGETHER = 8


@dataclass(frozen=True)
class Period:
    """Whole steps: from `begin_ns` to `end_ns` on the main stream, launched from `launch_begin_ns` to `launch_end_ns`.

    Both launch times are 0 where no calls were recorded.
    """

    units: int
    begin_ns: int
    end_ns: int
    launch_begin_ns: int = 0
    launch_end_ns: int = 0

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.begin_ns

    @property
    def unit_ns(self) -> float:
        return self.duration_ns / self.units


def period_of(place: Place, most_work: int, most_units: int) -> Period:
    """The steps that were launched inside the recording, or all where no calls were recorded.

    Of more work than `most_work` pieces, or more than `most_units` steps, only the last ones, at least one.
    """
    edges = place.steps.even_bounds
    launched = _launched_at(place, edges)
    first, last = _chosen(place, edges, launched, most_work, most_units), edges.size - 1
    begin, end = int(edges[first]), int(edges[last])
    if not launched[first]:
        return Period(last - first, begin, end)
    launch_end = int(launched[last]) if launched[last] else int(launched[first]) + end - begin
    return Period(last - first, begin, end, int(launched[first]), launch_end)


def _chosen(place: Place, edges: Ints, launched: Ints, most_work: int, most_units: int) -> int:
    """The first step to simulate."""
    last = edges.size - 1
    first = int(np.argmax(launched > 0))
    if first >= last:
        first = 0
    first = max(first, last - most_units)
    at = np.searchsorted(place.work.start_ns, edges)
    while first < last - 1 and at[last] - at[first] > most_work:
        first += 1
    return first


def _launched_at(place: Place, edges: Ints) -> Ints:
    """When the work that begins at each edge was launched; 0 where that was not recorded."""
    work = place.work
    launched_at = np.where(launches(place).known, launches(place).at_ns, 0)
    rows = np.searchsorted(work.start_ns, edges)[:, None] + np.arange(_TOGETHER)
    inside = np.minimum(rows, len(work) - 1)
    same = (rows < len(work)) & (work.start_ns[inside] == edges[:, None])
    launched: Ints = np.where(same, launched_at[inside], 0).max(axis=1)
    return launched


def launched_in(place: Place, period: Period) -> Ints:
    """Rows of DeviceWork launched in the period; where no launch on the stream is known, those that ran in it."""
    work = place.work
    inside = (work.start_ns >= period.begin_ns) & (work.start_ns < period.end_ns)
    if not period.launch_begin_ns:
        return np.flatnonzero(inside)
    at = _in_stream_order(place)
    launched = (at >= period.launch_begin_ns) & (at < period.launch_end_ns)
    return np.flatnonzero(np.where(at > 0, launched, inside))


def _in_stream_order(place: Place) -> Ints:
    """When each row of work was launched: without a launch, no sooner than the work before it on its stream; else 0."""
    work = place.work
    at = np.where(launches(place).known, launches(place).at_ns, 0)
    for stream in np.unique(work.stream).tolist():
        own = work.stream == stream
        at[own] = np.maximum.accumulate(at[own])
    return at
