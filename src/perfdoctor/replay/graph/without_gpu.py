"""What waits for what on a run without a GPU? The training thread, cut wherever another thread matters.

The thread is its own device and does one thing after the other. Its nodes are the moments at which other threads
matter; all that it does between two of them is one gap, which edits make shorter:

```
end of a step   HOST, and a piece of WORK without a duration: steps are counted by them
batch           HOST, behind the thread · where a loader has a pace of its own, the batch before + that pace
collective      WORK on a thread of its library: behind the one before it there · behind the HOST that asked for it
wait            HOST where the thread begins to stand still, WAIT_END behind the collective that ended last before it
```
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.communication.collectives import waited_for
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask
from perfdoctor.replay.graph.build import ALL_UNITS, LEAST_LOADER_WAIT
from perfdoctor.replay.graph.graph import HOST, NOTHING, WAIT_END, WORK, Graph

#: What may happen on the training thread; of things at the same moment the first here comes first.
_GOES_ON, _BATCH, _ASK, _EDGE, _WAITS = range(5)
#: From the end of a collective on its own thread until the training thread runs again, some clocks' slack included.
_SLACK_NS = 50_000


class _TrainingThread(Struct, frozen=True):
    """The events on the training thread in order: the kind of each, its time, and its row among those of its kind."""

    kind: Ints
    at_ns: Ints
    row: Ints


class _Steps(Struct, frozen=True):
    """The steps that are simulated: their edges, the waits of the thread in them, and the messages sent in them."""

    place: HostPlace
    edges_ns: Ints
    #: When the thread waited for collectives.
    waits: Intervals
    #: When the thread waited for a batch, where the loader has a pace of its own, and for long enough.
    late: Intervals
    #: Rows of the place's recorded collectives.
    sent: Ints

    @property
    def period_ns(self) -> int:
        return int(self.edges_ns[-1] - self.edges_ns[0])


def host_graph(place: HostPlace, *, paced: bool = True, most_units: int = ALL_UNITS) -> Graph | None:
    """The graph of a training thread's steps; None where no steps were found. Of more steps, only the last ones.

    `paced`: does the loader deliver at its own pace, beside the training? Else its work is the thread's.
    """
    if not place.steps.used:
        return None
    edges = place.steps.even_bounds[-min(most_units, place.steps.used) - 1 :]
    period = Intervals.single(int(edges[0]), int(edges[-1]))
    begun = place.recorded_collectives.start_ns
    sent = np.flatnonzero((begun >= edges[0]) & (begun < edges[-1]))
    steps = _Steps(place, edges, _waits(place) & period, _late_batches(place, period, paced=paced), sent)
    return _Draft(steps, _thread(steps)).graph()


def _waits(place: HostPlace) -> Intervals:
    """The time in which the thread waited for a collective; asking for one is its own work."""
    frame = place.recorded_collectives
    sending = Intervals.of(frame.start_ns, frame.end_ns) | place.handed_over
    return (waited_for(place) & sending) - place.own_communication


def _late_batches(place: HostPlace, period: Intervals, *, paced: bool) -> Intervals:
    waited = place.host.explicit["input_wait"] & period
    late = waited.durations_ns > LEAST_LOADER_WAIT * place.window_ns / place.units
    return Intervals(waited.starts[late & paced], waited.ends[late & paced])


def _thread(steps: _Steps) -> _TrainingThread:
    edges, waits, batches = steps.edges_ns[1:], steps.waits, steps.late.ends
    asked = np.maximum(_asked_at(steps), steps.edges_ns[0])
    each = {
        _GOES_ON: waits.ends,
        _BATCH: _outside(batches, waits, to_end=True),
        _ASK: _outside(asked, waits, to_end=False),
        _EDGE: _outside(edges, waits, to_end=True),
        _WAITS: waits.starts,
    }
    kind = np.repeat(list(each), [moments.size for moments in each.values()])
    at_ns = np.concatenate(list(each.values()))
    row = np.concatenate([np.arange(moments.size) for moments in each.values()])
    order = np.lexsort((kind, at_ns))
    return _TrainingThread(kind[order], at_ns[order], row[order])


def _outside(moments: Ints, waits: Intervals, *, to_end: bool) -> Ints:
    """These moments, moved out of waits: a thread that waits does nothing else, so the clocks were imprecise."""
    place = np.searchsorted(waits.starts, moments, side="right") - 1
    known = place >= 0
    begin, end = (edges[np.maximum(place, 0)] if edges.size else moments for edges in (waits.starts, waits.ends))
    within = known & (moments > begin) & (moments < end)
    return np.where(within, end if to_end else begin, moments)


def _asked_at(steps: _Steps) -> Ints:
    """The moment by which the training thread had asked for each collective; its begin if that is not known."""
    place = steps.place
    begun = np.minimum(place.asks.end_ns, place.recorded_collectives.start_ns) if len(place.asks) else None
    return (place.recorded_collectives.start_ns if begun is None else begun)[steps.sent]


def with_fewer_collectives(graph: Graph, share: float) -> Graph:
    """The graph with this share of each step's collectives merged into its last one: ranks do not wait at those.

    The way from thread to thread and back goes, too. All ranks give up the same ones, counted from the last.
    """
    number = np.arange(graph.collectives.size)[::-1]
    gone = (number * share).astype(np.int64) != ((number + 1) * share).astype(np.int64)
    gone &= number % max(round(number.size / graph.units), 1) != 0
    duration = graph.duration_ns.copy()
    duration[graph.collectives[gone]] = np.minimum(duration[graph.collectives], graph.transfer_ns)[gone]
    merged = np.zeros(len(graph), dtype=bool)
    merged[graph.collectives[gone]] = True
    merged |= (graph.kind == WAIT_END) & (graph.depends[1] != NOTHING) & merged[np.maximum(graph.depends[1], 0)]
    way = np.where(merged, np.minimum(graph.lag_ns[1], 0), graph.lag_ns[1])
    return replace(
        graph,
        duration_ns=duration,
        extra_ns=np.where(merged, 0, graph.extra_ns),
        lag_ns=(graph.lag_ns[0], way, graph.lag_ns[2]),
        collectives=graph.collectives[~gone],
        transfer_ns=graph.transfer_ns[~gone],
    )


class _Draft:
    """The thread's nodes first, then collectives, then the ends of steps; ordered at the end."""

    def __init__(self, steps: _Steps, thread: _TrainingThread) -> None:
        self.steps, self.thread, place = steps, thread, steps.place
        self.frame: Frame = place.recorded_collectives.take(steps.sent)
        edges = np.flatnonzero(thread.kind == _EDGE)
        hosts, sent, ends = thread.kind.size, steps.sent.size, edges.size
        self.hosts, self.sent = np.arange(hosts), hosts + np.arange(sent)
        self.ends, self.size = hosts + sent + np.arange(ends), hosts + sent + ends
        self.start = np.concatenate((thread.at_ns, self.frame.start_ns, thread.at_ns[edges]))
        self.end = np.concatenate((thread.at_ns, self.frame.end_ns, thread.at_ns[edges]))
        self.kind = np.repeat(np.array([HOST, WORK], np.int8), [hosts, sent + ends])
        self.kind[: self.hosts.size][thread.kind == _GOES_ON] = WAIT_END
        self.depends = [np.full(self.size, NOTHING, np.int64) for _ in range(3)]
        self.before = [np.zeros(self.size, dtype=bool) for _ in range(3)]
        self.lag_ns = [np.zeros(self.size, np.int64) for _ in range(3)]
        self.gap_start, self.loader_wait = self.start.copy(), np.zeros(self.size, np.int64)
        rows = np.flatnonzero(place.work.stream == UNKNOWN)[place.steps.used - ends :]
        self.work_row = np.concatenate((np.full(hosts, UNKNOWN), place.work.rows["collectives"][steps.sent], rows))

    def tie(self, which: int, nodes: Ints, to: Ints, lag_ns: Ints | int, before: Mask | bool = False) -> None:
        self.depends[which][nodes], self.lag_ns[which][nodes], self.before[which][nodes] = to, lag_ns, before

    def graph(self) -> Graph:
        self._program_order()
        self._loader()
        self._collectives()
        self._goes_on()
        self.tie(0, self.ends, np.flatnonzero(self.thread.kind == _EDGE), 0)
        return self._ordered()

    def _program_order(self) -> None:
        """Tie each moment to the one before at the recorded distance, and the first to the end of the last step."""
        at_ns = self.thread.at_ns
        since = np.append(self.steps.edges_ns[0], at_ns[:-1])
        goes_on = self.thread.kind == _GOES_ON
        self.gap_start[self.hosts] = np.where(goes_on, at_ns, since)
        lag = np.where(goes_on, 0, at_ns - since)
        self.tie(0, self.hosts, np.roll(self.hosts, 1), lag, self.hosts == 0)

    def _loader(self) -> None:
        """Tie awaited batches to the batch before, at the recorded distance, however fast the training is."""
        nodes = np.flatnonzero(self.thread.kind == _BATCH)
        if not nodes.size:
            return
        waited = self.steps.late.durations_ns[self.thread.row[nodes]]
        since = np.diff(self.start[nodes], prepend=self.start[nodes[-1]] - self.steps.period_ns)
        self.tie(1, nodes, np.roll(nodes, 1), since, np.arange(nodes.size) == 0)
        waited = np.minimum(waited, self.lag_ns[0][nodes])
        self.lag_ns[0][nodes] -= waited
        self.loader_wait[nodes] = waited

    def _collectives(self) -> None:
        """Tie each collective to the one before on its thread, and to the training thread's request for it."""
        if not self.sent.size:
            return
        for stream in np.unique(self.frame["stream"]).tolist():
            own = self.sent[self.frame["stream"] == stream]
            overlap = np.append(0, np.minimum(self.start[own[1:]] - self.end[own[:-1]], 0))
            self.tie(0, own, np.roll(own, 1), overlap, np.arange(own.size) == 0)
        asks = np.flatnonzero(self.thread.kind == _ASK)
        asked = asks[np.argsort(self.thread.row[asks])]
        since = self.start[self.sent] - self.start[asked]
        self.tie(1, self.sent, asked, np.minimum(since, int(np.median(since))))

    def _goes_on(self) -> None:
        """Tie the end of each wait to the collective that ended last before it."""
        nodes = np.flatnonzero(self.thread.kind == _GOES_ON)
        if not nodes.size or not self.sent.size:
            return
        order = np.argsort(self.end[self.sent], kind="stable")
        last = np.searchsorted(self.end[self.sent][order], self.start[nodes] + _SLACK_NS, side="right") - 1
        behind = self.sent[order[np.maximum(last, 0)]]
        # One that began later cannot have been waited for; a wait at the edge may have been for one outside.
        use = (last >= 0) & (self.start[behind] < self.start[nodes]) & (self.end[behind] > self._begun(nodes))
        self.tie(1, nodes[use], behind[use], (self.start[nodes] - self.end[behind])[use])
        self.lag_ns[0][nodes[~use]] = (self.start[nodes] - self._begun(nodes))[~use]

    def _begun(self, nodes: Ints) -> Ints:
        return self.steps.waits.starts[self.thread.row[nodes]]

    def _unexplained(self) -> Ints:
        """Ns by which each node began later than its dependencies explain."""
        latest = np.full(self.size, np.iinfo(np.int64).min)
        for on, flags, lag in zip(self.depends, self.before, self.lag_ns, strict=True):
            moment = self.end[np.maximum(on, 0)] - np.where(flags, self.steps.period_ns, 0) + lag
            latest = np.where(on >= 0, np.maximum(latest, moment), latest)
        late: Ints = np.maximum(self.start - latest, 0)
        return late

    def _ordered(self) -> Graph:
        """The graph with nodes sorted by start; at the same moment the thread's nodes first, in their order."""
        order = np.lexsort((np.arange(self.size), self.start))
        place = np.empty(self.size, np.int64)
        place[order] = np.arange(self.size)
        depends = [np.where(on >= 0, place[np.maximum(on, 0)], NOTHING)[order] for on in self.depends]
        before, lag = [each[order] for each in self.before], [each[order] for each in self.lag_ns]
        return Graph(
            place=self.steps.place, kind=self.kind[order],
            recorded_start_ns=self.start[order], recorded_end_ns=self.end[order],
            duration_ns=(self.end - self.start)[order], extra_ns=self._unexplained()[order],
            depends=(depends[0], depends[1], depends[2]), before=(before[0], before[1], before[2]),
            lag_ns=(lag[0], lag[1], lag[2]),
            work_row=self.work_row[order], call_row=np.full(self.size, UNKNOWN),
            gap_start_ns=self.gap_start[order], gap_end_ns=self.start[order],
            loader_wait_ns=self.loader_wait[order], awaited=self.steps.late,
            period_ns=self.steps.period_ns, units=self.ends.size,
        )  # fmt: skip
