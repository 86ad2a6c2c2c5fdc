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
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints
from perfdoctor.replay.graph.build import ALL_UNITS, LEAST_LOADER_WAIT
from perfdoctor.replay.graph.draft import Draft
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


def host_graph(place: HostPlace, *, paced: bool = True, most_units: int = ALL_UNITS) -> Graph | None:
    """The graph of a training thread's steps; None where no steps were found. Of more steps, only the last ones.

    `paced`: does the loader deliver at its own pace, beside the training? Else its work is the thread's.
    """
    if not place.steps.used:
        return None
    edges = place.steps.even_bounds[-min(most_units, place.steps.used) - 1 :]
    period = Intervals.single(int(edges[0]), int(edges[-1]))
    frame = place.recorded_collectives
    sent = np.flatnonzero((frame.start_ns >= edges[0]) & (frame.start_ns < edges[-1]))
    sending = frame.intervals | place.handed_over
    waits = (waited_for(place) & sending) - place.own_communication  # asking for a collective is the thread's own work
    awaited = place.host.explicit["input_wait"] & period
    late = paced & (awaited.durations_ns > LEAST_LOADER_WAIT * place.window_ns / place.units)
    steps = _Steps(place, edges, waits & period, Intervals(awaited.starts[late], awaited.ends[late]), sent)
    return _ThreadDraft(steps, _thread(steps)).graph()


def _thread(steps: _Steps) -> _TrainingThread:
    edges, waits, batches, place = steps.edges_ns[1:], steps.waits, steps.late.ends, steps.place
    asked = place.recorded_collectives.start_ns  # at the latest the thread had asked for them by then
    if len(place.asks):
        asked = np.minimum(place.asks.end_ns, asked)
    asked = np.maximum(asked[steps.sent], steps.edges_ns[0])
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


class _ThreadDraft(Draft):
    """The nodes of a training thread, then its collectives, then the ends of steps."""

    def __init__(self, steps: _Steps, thread: _TrainingThread) -> None:
        self.steps, self.thread, place = steps, thread, steps.place
        self.frame: Frame = place.recorded_collectives.take(steps.sent)
        edges = np.flatnonzero(thread.kind == _EDGE)
        hosts, sent, ends = thread.kind.size, steps.sent.size, edges.size
        self.hosts, self.sent, self.ends = np.split(np.arange(hosts + sent + ends), [hosts, hosts + sent])
        kind = np.repeat(np.array([HOST, WORK], np.int8), [hosts, sent + ends])
        kind[:hosts][thread.kind == _GOES_ON] = WAIT_END
        super().__init__(place, kind, int(steps.edges_ns[-1] - steps.edges_ns[0]), ends)
        self.start = np.concatenate((thread.at_ns, self.frame.start_ns, thread.at_ns[edges]))
        self.end = np.concatenate((thread.at_ns, self.frame.end_ns, thread.at_ns[edges]))
        self.duration, self.awaited = self.end - self.start, steps.late
        self.gap_start, self.gap_end = self.start.copy(), self.start
        rows = np.flatnonzero(place.work.stream == UNKNOWN)[place.steps.used - ends :]
        self.work_row = np.concatenate((np.full(hosts, UNKNOWN), place.work.rows["collectives"][steps.sent], rows))

    def graph(self) -> Graph:
        self._program_order()
        self._loader()
        self._collectives()
        self._goes_on()
        self.tie(0, self.ends, np.flatnonzero(self.thread.kind == _EDGE))
        return self.ordered(self.unexplained(), np.full(self.size, UNKNOWN), self.work_row)

    def _program_order(self) -> None:
        """Tie each moment to the one before at the recorded distance, and the first to the end of the last step."""
        at_ns = self.thread.at_ns
        since = np.append(self.steps.edges_ns[0], at_ns[:-1])
        goes_on = self.thread.kind == _GOES_ON
        self.gap_start[self.hosts] = np.where(goes_on, at_ns, since)
        lag = np.where(goes_on, 0, at_ns - since)
        self.tie(0, self.hosts, np.roll(self.hosts, 1), lag_ns=lag, before=self.hosts == 0)

    def _loader(self) -> None:
        """Tie batches that the thread waited for to the batch before."""
        nodes = np.flatnonzero(self.thread.kind == _BATCH)
        waited = self.steps.late.durations_ns[self.thread.row[nodes]]
        if nodes.size:
            self.tie_batches(nodes, np.minimum(waited, self.lag_ns[0][nodes]), self.period_ns)

    def _collectives(self) -> None:
        """Tie each collective to the one before on its thread, and to the training thread's request for it."""
        if not self.sent.size:
            return
        for stream in np.unique(self.frame["stream"]).tolist():
            self.tie_in_a_row(self.sent[self.frame["stream"] == stream])
        asks = np.flatnonzero(self.thread.kind == _ASK)
        asked = asks[np.argsort(self.thread.row[asks])]
        since = self.start[self.sent] - self.start[asked]
        self.tie(1, self.sent, asked, lag_ns=np.minimum(since, int(np.median(since))))

    def _goes_on(self) -> None:
        """Tie the end of each wait to the collective that ended last before it."""
        nodes = np.flatnonzero(self.thread.kind == _GOES_ON)
        if not nodes.size or not self.sent.size:
            return
        order = np.argsort(self.end[self.sent], kind="stable")
        last = np.searchsorted(self.end[self.sent][order], self.start[nodes] + _SLACK_NS, side="right") - 1
        behind = self.sent[order[np.maximum(last, 0)]]
        # One that began later cannot have been waited for; a wait at the edge may have been for one outside.
        begun = self.steps.waits.starts[self.thread.row[nodes]]
        use = (last >= 0) & (self.start[behind] < self.start[nodes]) & (self.end[behind] > begun)
        self.tie(1, nodes[use], behind[use], lag_ns=(self.start[nodes] - self.end[behind])[use])
        self.lag_ns[0][nodes[~use]] = (self.start[nodes] - begun)[~use]
