"""What waits for what in the steps of one device? Calls on the host and work on the device, as a graph that repeats.

A *node* is a call on a thread that drives the device, the end of a call that waits, or one piece of device work. It
ends `duration_ns` after the last of up to three nodes that it depends on, each with a lag:

```
host call      its predecessor on the host (program order; another thread where that woke this one) + the time between
end of a wait  the call's beginning · the device work that it waited for + the way back
device work    its predecessor on the stream · its launch + latency · work of another stream (events, inferred)
```

The nodes are those of the window's steps, by when they were *issued*. Played several times in a row, each time behind
the time before, they show the steady step: what is first on a stream depends on what was last there before. Which
event a wait waits for is not recorded. It is taken to be the work that ended last before the wait did; `inferred`
counts such.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.host_names import ALLOCATOR_CALL, STREAM_WAIT
from perfdoctor.metrics.idle_causes import blocking_calls, driving_threads
from perfdoctor.metrics.queued import launch_latency_ns
from perfdoctor.timeline.model import UNKNOWN, Frame, Ints, Mask

HOST, WAIT_END, WORK = 0, 1, 2
_EVENT = re.compile("EventSynchronize")

#: No dependency.
NOTHING = -1
#: A thread that did nothing for so long, while another one of the program did, was woken by it.
_WOKEN_NS = 50_000
#: A launch takes 5-20 µs, also under a profiler. A far longer one waits until the device's queue has room.
_LONGEST_LAUNCH_NS = 100_000
#: What a call that waits takes by itself.
_OWN_OF_WAIT_NS = 10_000
#: Clocks of host and device agree to some µs, ends and starts of device work to one.
_CLOCK_SLACK_NS, _DEVICE_SLACK_NS = 20_000, 1_000
#: A start this much later than stream and launch explain has another reason.
_UNEXPLAINED_NS = 2_000
#: Shorter waits for a batch, as a share of the step, do not show that the loader is slower than the training.
LEAST_LOADER_WAIT = 0.03
#: Enough for a hundred steps of a small model, and played in a tenth of a second.
MOST_WORK = 20_000

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which each comes after all it depends on. Arrays have one entry a node, times are in ns.

    `depends[k]` (k = 0, 1, 2) is the node depended on, NOTHING, or a node of the repetition before where `before[k]`.
    `work_row` is the row of DeviceWork, `call_row` that of `timeline.calls`; UNKNOWN on other nodes.
    """

    place: Place
    kind: npt.NDArray[np.int8]
    recorded_end_ns: Numbers
    duration_ns: Numbers
    extra_ns: Numbers
    depends: tuple[Numbers, Numbers, Numbers]
    before: tuple[Mask, Mask, Mask]
    lag_ns: tuple[Numbers, Numbers, Numbers]
    work_row: Numbers
    call_row: Numbers
    #: The stretch of host time in front of a HOST node that its first lag stands for.
    gap_start_ns: Numbers
    #: How long the loader made a HOST node wait, where the loader has a pace of its own: the node's second dependency.
    loader_wait_ns: Numbers
    period_ns: int
    units: int
    inferred: int = 0
    #: Nodes of collectives that all ranks recorded, in their order; and how long each takes once all are there.
    meetings: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    transfer_ns: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    #: How far this rank's clock is ahead of the first one's.
    clock_ns: int = 0

    def __len__(self) -> int:
        return int(self.kind.size)


@dataclass(frozen=True)
class _Host:
    """Outermost calls of the driving threads in the period, by start: their rows in `timeline.calls`, which wait."""

    rows: Numbers
    start_ns: Numbers
    end_ns: Numbers
    thread: Numbers
    waits: Mask
    #: When the next period's first call is made.
    again_ns: int

    def __len__(self) -> int:
        return int(self.rows.size)


def graph_of(place: Place, most_work: int = MOST_WORK, *, paced: bool = True) -> Graph | None:
    """The graph of a place's steps; None where the recording has no steps or no device work in them.

    Of more work than `most_work` pieces only the last steps are taken, at least one. `paced`: does the loader deliver
    at its own pace, beside the training? Else its work is the host's.
    """
    if place.device is None or not place.steps.used or not len(place.work):
        return None
    period = _period(place, most_work)
    rows = _issued_in(place, period)
    if not rows.size:
        return None
    return _Builder(place, _host(place, period), rows, period).build(paced)


@dataclass(frozen=True)
class _Period:
    """Whole steps: from `begin_ns` to `end_ns` on the main stream, issued from `issue_begin_ns` to `issue_end_ns`."""

    units: int
    begin_ns: int
    end_ns: int
    issue_begin_ns: int = 0
    issue_end_ns: int = 0

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.begin_ns


def _period(place: Place, most_work: int) -> _Period:
    """The steps that were issued inside the recording, or all where no calls were recorded."""
    work, edges = place.work, place.steps.even_bounds
    launched_at = np.where(
        work.launch != UNKNOWN, place.timeline.calls.start_ns[np.maximum(work.launch, 0)] if _has_calls(place) else 0, 0
    )
    at = np.searchsorted(work.start_ns, edges)
    issued = np.array(
        [_issue(work.start_ns, launched_at, int(row), int(edge)) for row, edge in zip(at, edges, strict=True)]
    )
    first = int(np.argmax(issued > 0)) if (issued > 0).any() else 0
    last = edges.size - 1
    if first >= last:
        first = 0
    while first < last - 1 and at[last] - at[first] > most_work:
        first += 1
    begin, end = int(edges[first]), int(edges[last])
    if not issued[first]:
        return _Period(last - first, begin, end)
    issue_end = int(issued[last]) if issued[last] else int(issued[first]) + end - begin
    return _Period(last - first, begin, end, int(issued[first]), issue_end)


def _has_calls(place: Place) -> bool:
    return len(place.timeline.calls) > 0


def _issue(start: Numbers, launched_at: Numbers, row: int, edge: int) -> int:
    """When the work that begins at an edge was launched; 0 where that was not recorded."""
    same = [int(launched_at[each]) for each in range(row, min(row + 8, start.size)) if start[each] == edge]
    return max(same, default=0)


def _issued_in(place: Place, period: _Period) -> Numbers:
    """Rows of DeviceWork that the period issued; without launch, those that ran in it."""
    work = place.work
    launched = work.launch != UNKNOWN
    inside = (work.start_ns >= period.begin_ns) & (work.start_ns < period.end_ns)
    if not period.issue_begin_ns:
        return np.flatnonzero(inside)
    at = place.timeline.calls.start_ns[np.maximum(work.launch, 0)]
    issued = (at >= period.issue_begin_ns) & (at < period.issue_end_ns)
    return np.flatnonzero(np.where(launched, issued, inside))


def _host(place: Place, period: _Period) -> _Host:
    calls = place.timeline.calls
    none = np.empty(0, np.int64)
    if not period.issue_begin_ns:
        return _Host(none, none, none, none, none.astype(bool), 0)
    threads = driving_threads(place.timeline, place.rank, None)
    own = (calls["rank"] == place.rank) & np.isin(calls["thread"], threads)
    rows = _outermost(calls, np.flatnonzero(own))
    start = calls.start_ns[rows]
    rows = rows[(start >= period.issue_begin_ns) & (start < period.issue_end_ns)]
    return _Host(
        rows,
        calls.start_ns[rows],
        calls.end_ns[rows],
        calls["thread"][rows],
        _waits(place, rows),
        period.issue_end_ns,
    )


def _outermost(calls: Frame, rows: Numbers) -> Numbers:
    """Without calls inside another of the same thread (the driver's inside the runtime's)."""
    kept = []
    for thread in np.unique(calls["thread"][rows]).tolist():
        own = rows[calls["thread"][rows] == thread]
        reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(calls.end_ns[own])[:-1]))
        kept.append(own[calls.start_ns[own] >= reach])
    return np.sort(np.concatenate(kept)) if kept else rows


def _waits(place: Place, rows: Numbers) -> Mask:
    """Which of these calls wait for the device: by name, copies to pageable memory, launches into a full queue."""
    calls, work = place.timeline.calls, place.work
    blocking = blocking_calls(place.host, work, calls)
    keys = _keys(blocking)
    launching = np.isin(rows, work.launch)
    took = calls.end_ns[rows] - calls.start_ns[rows]
    allocates = calls.name.matches(ALLOCATOR_CALL)[rows]
    full = launching & (took > _LONGEST_LAUNCH_NS) & ~allocates
    waits: Mask = np.isin(_keys(calls)[rows], keys) | full
    return waits


def _keys(calls: Frame) -> Numbers:
    return calls["thread"] * 1_000_003 + calls.start_ns


class _Builder:
    """Puts the nodes of one period together. Works on whole columns; order is made at the end."""

    def __init__(self, place: Place, host: _Host, rows: Numbers, period: _Period) -> None:
        self.place, self.host, self.rows, self.period = place, host, rows, period
        self.work = place.work
        self.calls = place.timeline.calls
        self.latency_ns = launch_latency_ns(place.work, self.calls)
        self.hosts, self.waiting, self.works = len(host), int(host.waits.sum()), int(rows.size)
        self.size = self.hosts + self.waiting + self.works
        self.depends = [np.full(self.size, NOTHING, np.int64) for _ in range(3)]
        self.before = [np.zeros(self.size, dtype=bool) for _ in range(3)]
        self.lag_ns = [np.zeros(self.size, np.int64) for _ in range(3)]
        self.start, self.end = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        self.duration = np.zeros(self.size, np.int64)
        self.gap_start = np.zeros(self.size, np.int64)
        self.loader_wait = np.zeros(self.size, np.int64)
        self.inferred = 0
        #: The node with which a call is over.
        self.over = np.arange(self.hosts)
        self.over[host.waits] = self.hosts + np.arange(self.waiting)
        self.first_of_work = self.hosts + self.waiting

    def build(self, paced: bool) -> Graph:
        self._calls()
        if paced:
            self._loader()
        self._streams()
        self._launches()
        self._other_streams()
        self._waits()
        return self._ordered()

    def _calls(self) -> None:
        """Program order: behind the last call of the same thread, or of the one that woke it."""
        host = self.host
        if not self.hosts:
            return
        node = np.arange(self.hosts)
        self.start[node], self.end[node] = host.start_ns, np.where(host.waits, host.start_ns, host.end_ns)
        self.duration[node] = self.end[node] - self.start[node]
        previous = _previous_of_thread(host.thread)
        previous_end = np.where(previous >= 0, host.end_ns[np.maximum(previous, 0)], np.iinfo(np.int64).min)
        by_end = np.argsort(host.end_ns, kind="stable")
        place = np.searchsorted(host.end_ns[by_end], host.start_ns, side="right") - 1
        latest = np.where(place >= 0, by_end[np.maximum(place, 0)], NOTHING)
        # In a recording of whole µs calls may take none, and end as they or the next ones begin.
        latest = np.where(latest >= node, previous, latest)
        latest_end = np.where(latest >= 0, host.end_ns[np.maximum(latest, 0)], np.iinfo(np.int64).min)
        woken = (
            (latest >= 0) & (latest_end > previous_end) & ((previous < 0) | (host.start_ns - previous_end > _WOKEN_NS))
        )
        source = np.where(woken, latest, previous)
        first = source < 0
        self.depends[0][node] = np.where(first, self.over[by_end[-1]], self.over[np.maximum(source, 0)])
        self.before[0][node] = first
        self.gap_start[node] = np.where(first, host.end_ns.max(), host.end_ns[np.maximum(source, 0)])
        # The first call comes again when the next period's first one was made.
        again = host.start_ns - host.start_ns[0] + host.again_ns
        self.lag_ns[0][node] = np.maximum(np.where(first, again, host.start_ns) - self.gap_start[node], 0)
        self.inferred += int(woken.sum())

    def _loader(self) -> None:
        """A batch that is waited for comes as long after the one before as it did, however fast the training is."""
        node = np.arange(self.hosts)
        gap_end = self.gap_start[node] + self.lag_ns[0][node]
        awaited = self.place.host.explicit["input_wait"] | self.place.idle_causes["input_wait"]
        waited = awaited.overlap_ns(self.gap_start[node], gap_end)
        waits = np.flatnonzero(waited > LEAST_LOADER_WAIT * self.period.duration_ns / self.period.units)
        if not waits.size:
            return
        previous = np.concatenate((waits[-1:], waits[:-1]))
        self.depends[1][waits], self.before[1][waits[0]] = previous, True
        begun = self.start[waits]
        since = begun - self.end[previous]
        since[0] += self.period.issue_end_ns - self.period.issue_begin_ns
        self.lag_ns[1][waits] = since
        self.lag_ns[0][waits] -= waited[waits]
        self.loader_wait[waits] = waited[waits]

    def _streams(self) -> None:
        """Work starts when what is before it on its stream has ended, or a little before where streams allow that."""
        work, node = self.work, self.first_of_work + np.arange(self.works)
        start, end = work.start_ns[self.rows], work.end_ns[self.rows]
        self.start[node], self.end[node], self.duration[node] = start, end, end - start
        for stream in np.unique(work.stream[self.rows]).tolist():
            own = np.flatnonzero(work.stream[self.rows] == stream)
            previous = np.concatenate((own[-1:], own[:-1]))
            self.depends[0][node[own]] = node[previous]
            self.before[0][node[own[:1]]] = True
            self.lag_ns[0][node[own[1:]]] = np.minimum(start[own[1:]] - end[own[:-1]], 0)

    def _launches(self) -> None:
        """Work starts no sooner than its call began and the launch took."""
        call = self.work.launch[self.rows]
        place = np.searchsorted(self.host.rows, call)
        known = (call != UNKNOWN) & (place < self.hosts)
        known[known] = self.host.rows[place[known]] == call[known]
        known[known] = self.host.start_ns[place[known]] <= self.work.start_ns[self.rows][known]
        self.launch = np.where(known, place, NOTHING)
        node, host = (self.first_of_work + np.arange(self.works))[known], place[known]
        self.depends[1][node] = host
        since = self.start[node] - self.host.start_ns[host]
        self.lag_ns[1][node] = np.minimum(since, self.latency_ns) - self.duration[host]

    def _other_streams(self) -> None:
        """Work that starts late for stream and launch, or behind a wait for an event, waits for another stream."""
        start, end = self.work.start_ns[self.rows], self.work.end_ns[self.rows]
        streams = self.work.stream[self.rows]
        node = self.first_of_work + np.arange(self.works)
        explained = self._explained(node)
        late = start - explained > _UNEXPLAINED_NS
        asked = late | self._behind_event()
        best, best_end = np.full(self.works, NOTHING), np.full(self.works, np.iinfo(np.int64).min)
        for stream in np.unique(streams).tolist():
            own = np.flatnonzero(streams == stream)
            reach = np.maximum.accumulate(end[own])
            place = np.searchsorted(reach, start + _DEVICE_SLACK_NS, side="right") - 1
            found = np.where(place >= 0, own[np.maximum(place, 0)], NOTHING)
            ends = np.where(place >= 0, reach[np.maximum(place, 0)], np.iinfo(np.int64).min)
            better = (streams != stream) & (ends > best_end) & (found >= 0)
            better &= start[np.maximum(found, 0)] < start
            best, best_end = np.where(better, found, best), np.where(better, ends, best_end)
        use = asked & (best >= 0)
        self.depends[2][node[use]] = node[best[use]]
        self.lag_ns[2][node[use]] = np.minimum(start[use] - end[best[use]], 0)
        self.inferred += int(use.sum())

    def _behind_event(self) -> Mask:
        """Was the stream told to wait for an event between the call that launched this work and the launch before?"""
        waits = np.flatnonzero(self.calls.name.matches(STREAM_WAIT)[self.host.rows]) if self.hosts else np.empty(0, int)
        behind = np.zeros(self.works, dtype=bool)
        launching = np.unique(self.launch[self.launch >= 0])
        if waits.size and launching.size:
            place = np.searchsorted(launching, waits, side="right")
            told = launching[place[place < launching.size]]
            behind = np.isin(self.launch, told)
        return behind

    def _explained(self, node: Numbers) -> Numbers:
        """When what is known so far would let this work start."""
        latest = np.full(node.size, np.iinfo(np.int64).min)
        for depends, before, lag in zip(self.depends, self.before, self.lag_ns, strict=True):
            known = (depends[node] >= 0) & ~before[node]
            moment = self.end[np.maximum(depends[node], 0)] + lag[node]
            latest = np.where(known, np.maximum(latest, moment), latest)
        return latest

    def _waits(self) -> None:
        """The end of a call that waits: the work that ended last before it, of what had been launched by then."""
        if not self.waiting:
            return
        waits = np.flatnonzero(self.host.waits)
        node = self.hosts + np.arange(self.waiting)
        begin, end = self.host.start_ns[waits], self.host.end_ns[waits]
        self.start[node], self.end[node] = end, end
        self.depends[0][node] = waits
        self.lag_ns[0][node] = np.minimum(end - begin, _OWN_OF_WAIT_NS)
        # What was issued before the period is taken to be as far back as its counterpart is from the period's end.
        now = self.work.end_ns[self.rows]
        work_end = np.concatenate((now, now - self.period.duration_ns))
        order = np.argsort(work_end, kind="stable")
        place = np.searchsorted(work_end[order], end + _CLOCK_SLACK_NS, side="right") - 1
        found = order[np.maximum(place, 0)]
        row, earlier = found % self.works, found >= self.works
        known = earlier | ((self.launch[row] <= waits) & (self.work.start_ns[self.rows][row] < end))
        # What had ended before did not hold the host up, but would if the host came sooner. Of an event that had been
        # reached nobody knows which work it followed.
        held = work_end[found] >= begin - _CLOCK_SLACK_NS
        of_event = self.calls.name.matches(_EVENT)[self.host.rows[waits]]
        use = (place >= 0) & known & (held | ~of_event)
        self.depends[1][node[use]] = self.first_of_work + row[use]
        self.before[1][node[use]] = earlier[use]
        self.lag_ns[1][node[use]] = np.where(held, end - work_end[found], 0)[use]
        self.inferred += int(use.sum())

    def _ordered(self) -> Graph:
        base_ns = int(self.start.min())
        kind = np.concatenate(
            (np.full(self.hosts, HOST), np.full(self.waiting, WAIT_END), np.full(self.works, WORK))
        ).astype(np.int8)
        # A wait ends before what follows it at the same moment begins, and after it has begun itself.
        key = (self.start - base_ns) + np.where(kind == WORK, 0.3, 0.0)
        ends, begins = np.flatnonzero(kind == WAIT_END), np.flatnonzero(self.host.waits)
        key[ends] = np.maximum(self.end[ends] - base_ns - 0.5, self.start[begins] - base_ns + 0.25)
        order = np.argsort(key, kind="stable")
        place = np.empty(self.size, np.int64)
        place[order] = np.arange(self.size)
        depends = [np.where(each >= 0, place[np.maximum(each, 0)], NOTHING)[order] for each in self.depends]
        before = [each[order] for each in self.before]
        for each, flags in zip(depends, before, strict=True):  # never on what comes later in this repetition
            each[(each >= np.arange(self.size)) & ~flags] = NOTHING
        end, duration = self.end[order], self.duration[order]
        lag = [each[order] for each in self.lag_ns]
        period = self.period.duration_ns
        latest = np.full(self.size, np.iinfo(np.int64).min)
        for each, flags, lags in zip(depends, before, lag, strict=True):
            moment = end[np.maximum(each, 0)] - np.where(flags, period, 0) + lags
            latest = np.where(each >= 0, np.maximum(latest, moment), latest)
        start = end - duration
        # Nothing is known to hold it: it comes again a period later.
        alone = latest == np.iinfo(np.int64).min
        depends[0] = np.where(alone, np.arange(self.size), depends[0])
        before[0] = before[0] | alone
        lag[0] = np.where(alone, period - duration, lag[0])
        extra = np.where(alone, 0, np.maximum(start - latest, 0))
        call_row = np.full(self.size, UNKNOWN)
        call_row[: self.hosts] = self.host.rows
        call_row[self.hosts : self.first_of_work] = self.host.rows[self.host.waits]
        work_row = np.full(self.size, UNKNOWN)
        work_row[self.first_of_work :] = self.rows
        return Graph(
            place=self.place, kind=kind[order], recorded_end_ns=end, duration_ns=duration, extra_ns=extra,
            depends=(depends[0], depends[1], depends[2]), before=(before[0], before[1], before[2]),
            lag_ns=(lag[0], lag[1], lag[2]), work_row=work_row[order], call_row=call_row[order],
            gap_start_ns=self.gap_start[order], loader_wait_ns=self.loader_wait[order],
            period_ns=period, units=self.period.units, inferred=self.inferred,
        )  # fmt: skip


def _previous_of_thread(thread: Numbers) -> Ints:
    """For each call the one before it on its thread, NOTHING for the first."""
    previous = np.full(thread.size, NOTHING, np.int64)
    order = np.argsort(thread, kind="stable")
    same = thread[order][1:] == thread[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return previous
