"""Which steps are simulated? Whole ones, as they ran on the main stream, with all that was launched in them.

Steps that are held to the host's bounds (`Steps.on_host`) are simulated from there: each repetition begins when the one
before is over on host and device.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.driving_threads import launching_threads
from perfdoctor.model.launches import launches
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Ints

#: As many of a step's first pieces of work may begin at the same moment.
_TOGETHER = 8


class Period(Struct, frozen=True):
    """Whole steps: from `begin_ns` to `end_ns` on the main stream, launched from `launch_begin_ns` to `launch_end_ns`.

    Both launch times are 0 where no calls were recorded. `closed`: at the end the host waits until all work is done.
    """

    units: int
    begin_ns: int
    end_ns: int
    launch_begin_ns: int = 0
    launch_end_ns: int = 0
    closed: bool = False

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.begin_ns

    @property
    def launches_again_ns(self) -> int:
        """How long after each call of this period its counterpart in the next is made."""
        return self.duration_ns if self.closed else self.launch_end_ns - self.launch_begin_ns


def period_of(place: Place, most_work: int, most_units: int) -> Period:
    """The steps that were launched inside the recording, or all where no calls were recorded.

    Of more work than `most_work` pieces, or more than `most_units` steps, only the last ones, at least one.
    """
    edges, on_host = place.steps.even_bounds, place.steps.host_bounds
    if on_host is not None and launches(place).known.any():
        return _on_host(place, edges, on_host, most_work, most_units)
    launched = _launched_at(place, edges)
    first, last = _chosen(place, edges, launched, most_work, most_units), edges.size - 1
    begin, end = int(edges[first]), int(edges[last])
    if not launched[first]:
        return Period(last - first, begin, end)
    launch_end = int(launched[last]) if launched[last] else _returned(place, int(launched[first]) + end - begin)
    return Period(last - first, begin, end, int(launched[first]), launch_end)


def _on_host(place: Place, edges: Ints, on_host: Ints, most_work: int, most_units: int) -> Period:
    """The period of steps that the host bounds. The first one includes work that was launched for it before."""
    last = edges.size - 1
    first = _chosen(place, edges, on_host, most_work, most_units)
    begin, launch_begin = int(edges[first]), int(on_host[first])
    if first == 0:
        launched = launches(place)
        own = launched.known & (place.work.start_ns >= begin) & (place.work.start_ns < edges[-1])
        launch_begin = int(launched.at_ns[own].min(initial=launch_begin))
    begin = min(begin, launch_begin)
    return Period(last - first, begin, int(edges[last]), launch_begin, int(on_host[-1]), closed=True)


def _returned(place: Place, moment: int) -> int:
    """The moment, moved to the end of the launching or waiting call that a driving thread was in."""
    calls = place.timeline.calls
    own = np.isin(calls["thread"], launching_threads(place.timeline, place.rank)) & (calls["rank"] == place.rank)
    open_then = own & (calls.start_ns < moment) & (calls.end_ns > moment)
    return int(calls.end_ns[open_then].max(initial=moment))


def _chosen(place: Place, edges: Ints, launched: Ints, most_work: int, most_units: int) -> int:
    """The first step to simulate. `launched`: when the work at each edge was launched, 0 where unknown."""
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
    """The launch in ns of the work that begins at each edge; 0 where that was not recorded."""
    work = place.work
    launched_at = np.where(launches(place).known, launches(place).at_ns, 0)
    rows = np.searchsorted(work.start_ns, edges)[:, None] + np.arange(_TOGETHER)
    inside = np.minimum(rows, len(work) - 1)
    same = (rows < len(work)) & (work.start_ns[inside] == edges[:, None])
    launched: Ints = np.where(same, launched_at[inside], 0).max(axis=1)
    return launched


def launched_in(place: Place, period: Period) -> Ints:
    """The rows of DeviceWork launched in the period; where no launch on the stream is known, those that ran in it."""
    work = place.work
    inside = (work.start_ns >= period.begin_ns) & (work.start_ns < period.end_ns)
    if not period.launch_begin_ns or period.closed:
        return np.flatnonzero(inside)
    # Without a launch, no sooner than the work before it on its stream; else 0.
    at = np.where(launches(place).known, launches(place).at_ns, 0)
    for stream in np.unique(work.stream).tolist():
        own = work.stream == stream
        at[own] = np.maximum.accumulate(at[own])
    launched = (at >= period.launch_begin_ns) & (at < period.launch_end_ns)
    return np.flatnonzero(np.where(at > 0, launched, inside))
