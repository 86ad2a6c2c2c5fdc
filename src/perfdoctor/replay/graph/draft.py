"""How do nodes that were found one kind after the other become a graph in an order in which it can be simulated?"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from perfdoctor.model.clocks import CLOCK_SLACK_NS
from perfdoctor.model.columns import occurring
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask
from perfdoctor.replay.graph.graph import HOST, NOTHING, WAIT_END, WORK, Graph
from perfdoctor.replay.graph.host_calls import HostCalls
from perfdoctor.replay.graph.period import Period

_NEVER = np.iinfo(np.int64).min
_Number = TypeVar("_Number", bound=np.generic)


class Draft:
    """The nodes of one period, the host's first. Works on whole columns; order is made at the end.

    At the same moment the host's nodes come first, by `position`, and then work.
    """

    def __init__(self, place: Place, kind: npt.NDArray[np.int8], period_ns: int, units: int) -> None:
        self.place, self.kind, self.period_ns, self.units, self.size = place, kind, period_ns, units, int(kind.size)
        self.depends = [np.full(self.size, NOTHING, np.int32) for _ in range(3)]
        self.before = [np.zeros(self.size, dtype=bool) for _ in range(3)]
        self.lag_ns = [np.zeros(self.size, np.int64) for _ in range(3)]
        self.start, self.end, self.duration = (np.zeros(self.size, np.int64) for _ in range(3))
        self.gap_start, self.gap_end, self.loader_wait = (np.zeros(self.size, np.int64) for _ in range(3))
        self.position = np.arange(self.size)
        self.awaited = Intervals.empty()

    def tie(self, which: int, nodes: Ints, to: Ints, *, lag_ns: Ints | int = 0, before: Mask | bool = False) -> None:
        """Make the `nodes` depend on the nodes `to` (of the repetition before if `before` says so)."""
        self.depends[which][nodes] = to
        self.lag_ns[which][nodes] = lag_ns
        self.before[which][nodes] = before

    def tie_in_a_row(self, nodes: Ints) -> None:
        """Tie each node to the one before; it may start a little before that ends if streams allow it."""
        overlap = np.append(0, np.minimum(self.start[nodes[1:]] - self.end[nodes[:-1]], 0))
        self.tie(0, nodes, np.roll(nodes, 1), lag_ns=overlap, before=np.arange(nodes.size) == 0)

    def tie_batches(self, nodes: Ints, waited_ns: Ints, again_ns: int) -> None:
        """Tie awaited batches to the batch before, at the recorded distance, however fast the training is.

        `again_ns`: how long after the first one its counterpart in the next period comes.
        """
        previous = np.roll(nodes, 1)
        since = self.start[nodes] - self.end[previous]
        since[0] += again_ns
        self.tie(1, nodes, previous, lag_ns=since, before=np.arange(nodes.size) == 0)
        self.lag_ns[0][nodes] -= waited_ns
        self.loader_wait[nodes] = waited_ns

    def unexplained(self) -> Ints:
        """Ns by which each node began later than its dependencies explain."""
        latest = np.full(self.size, _NEVER)
        for each, flags, lags in zip(self.depends, self.before, self.lag_ns, strict=True):
            moment = self.end[np.maximum(each, 0)]
            moment += lags
            moment[flags] -= self.period_ns
            moment[each < 0] = _NEVER
            np.maximum(latest, moment, out=latest)
        late: Ints = np.maximum(self.end - self.duration - latest, 0)
        return late

    def ordered(self, extra_ns: Ints, call_row: Ints, work_row: Ints) -> Graph:
        """The finished graph. It uses the draft up: each column is freed once it is in order, to save memory."""
        order = np.lexsort((self.position, self.kind == WORK, self.start))
        place = np.empty(self.size, np.int64)
        place[order] = np.arange(self.size)
        depends = [_all_alike(np.where(each >= 0, place[np.maximum(each, 0)], NOTHING)[order]) for each in self.depends]
        del place, self.depends, self.position
        for columns in (self.before, self.lag_ns):
            for which in range(3):
                columns[which] = _all_alike(columns[which][order])
        for name in ("start", "end", "duration", "gap_start", "gap_end", "loader_wait"):
            setattr(self, name, getattr(self, name)[order])
        return Graph(
            place=self.place, kind=self.kind[order],
            recorded_start_ns=self.start, recorded_end_ns=self.end, duration_ns=self.duration, extra_ns=extra_ns[order],
            depends=(depends[0], depends[1], depends[2]),
            before=(self.before[0], self.before[1], self.before[2]),
            lag_ns=(self.lag_ns[0], self.lag_ns[1], self.lag_ns[2]), work_row=work_row[order], call_row=call_row[order],
            gap_start_ns=self.gap_start, gap_end_ns=self.gap_end,
            loader_wait_ns=_all_alike(self.loader_wait), awaited=self.awaited,
            period_ns=self.period_ns, units=self.units,
        )  # fmt: skip


class DeviceDraft(Draft):
    """The nodes of a device and its host: calls, then the ends of those that wait, then device work."""

    def __init__(self, place: Place, host: HostCalls, rows: Ints, period: Period) -> None:
        self.host, self.rows, self.period = host, rows, period
        self.hosts, self.waiting, self.works = len(host), int(host.waits.sum()), int(rows.size)
        kind = np.repeat(np.array([HOST, WAIT_END, WORK], np.int8), [self.hosts, self.waiting, self.works])
        super().__init__(place, kind, period.duration_ns, period.units)
        #: Nodes that nothing else held up than what they depend on, however late they were recorded.
        self.free = np.zeros(self.size, dtype=bool)
        self.host_nodes = np.arange(self.hosts)
        self.wait_nodes = self.hosts + np.arange(self.waiting)
        self.work_nodes = self.hosts + self.waiting + np.arange(self.works)
        # At the same moment calls and their ends are in program order, and work is in the order of its rows.
        self.position[self.host_nodes] = 2 * self.host_nodes
        self.position[self.wait_nodes] = 2 * np.flatnonzero(host.waits) + 1
        #: The node with which a call is over.
        self.over = self.host_nodes.copy()
        self.over[host.waits] = self.wait_nodes
        #: Which call launched each row of work (NOTHING: not known), and when it ran.
        self.launch = host.of_rows(place.work.launch[rows])
        self.work_start, self.work_end = place.work.start_ns[rows], place.work.end_ns[rows]
        if len(host):
            early = host.start_ns[np.maximum(self.launch, 0)] - self.work_start
            self.launch = np.where((self.launch >= 0) & (early <= CLOCK_SLACK_NS), self.launch, NOTHING)
            # What stands a little before its launch began with it: latencies scatter around what clocks differ by.
            self.work_start = self.work_start + np.where(self.launch >= 0, np.maximum(early, 0), 0)
        self.streams = place.work.stream[rows]
        for stream in occurring(self.streams):  # what comes behind it on its stream stays behind it
            own = self.streams == stream
            self.work_start[own] = np.maximum.accumulate(self.work_start[own])
        self.work_end = np.maximum(self.work_start, self.work_end)

    def explained(self, nodes: Ints) -> Ints:
        """The earliest start in ns of these nodes by the dependencies within this repetition that are known so far."""
        latest = np.full(nodes.size, _NEVER)
        for depends, before, lag in zip(self.depends, self.before, self.lag_ns, strict=True):
            known = (depends[nodes] >= 0) & ~before[nodes]
            moment = self.end[np.maximum(depends[nodes], 0)] + lag[nodes]
            latest = np.where(known, np.maximum(latest, moment), latest)
        return latest

    def graph(self) -> Graph:
        """The finished graph, with the rows of `timeline.calls` and of DeviceWork that its nodes stand for."""
        del self.over, self.launch, self.work_start, self.work_end, self.streams
        late = self.unexplained()
        if not self.waiting:  # the host got ahead of the device, and is not held up between periods
            late[self.host_nodes[self.before[0][self.host_nodes]]] = 0
        late[self.free] = 0
        call_row, work_row = np.full(self.size, UNKNOWN), np.full(self.size, UNKNOWN)
        call_row[self.host_nodes] = self.host.rows
        call_row[self.wait_nodes] = self.host.rows[self.host.waits]
        work_row[self.work_nodes] = self.rows
        return self.ordered(late, call_row, work_row)


def _all_alike(column: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """The column, held in memory as one number if all of its values are equal."""
    alike = column.size and bool((column == column[0]).all())
    return np.broadcast_to(column[:1].copy(), column.shape) if alike else column
