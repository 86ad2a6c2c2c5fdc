"""How do nodes that were found one kind after the other become a graph in an order in which it can be simulated?

While it is drafted, calls come first, then the ends of those that wait, then device work, each kind in its own order.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask
from perfdoctor.replay.graph.graph import HOST, NOTHING, WAIT_END, WORK, Graph
from perfdoctor.replay.graph.host_calls import HostCalls
from perfdoctor.replay.graph.period import Period

_NEVER = np.iinfo(np.int64).min
_Number = TypeVar("_Number", bound=np.generic)


class Draft:
    """The nodes of one period. Works on whole columns; order is made at the end."""

    def __init__(self, place: Place, host: HostCalls, rows: Ints, period: Period) -> None:
        self.place, self.host, self.rows, self.period = place, host, rows, period
        self.hosts, self.waiting, self.works = len(host), int(host.waits.sum()), int(rows.size)
        self.size = self.hosts + self.waiting + self.works
        self.depends = [np.full(self.size, NOTHING, np.int32) for _ in range(3)]
        self.before = [np.zeros(self.size, dtype=bool) for _ in range(3)]
        self.lag_ns = [np.zeros(self.size, np.int64) for _ in range(3)]
        self.start, self.end = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        self.duration = np.zeros(self.size, np.int64)
        self.gap_start, self.gap_end = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        self.loader_wait = np.zeros(self.size, np.int64)
        self.awaited = Intervals.empty()
        self.inferred = 0
        #: Nodes that nothing else held up than what they depend on, however late they were recorded.
        self.free = np.zeros(self.size, dtype=bool)
        self.host_nodes = np.arange(self.hosts)
        self.wait_nodes = self.hosts + np.arange(self.waiting)
        self.work_nodes = self.hosts + self.waiting + np.arange(self.works)
        #: The node with which a call is over.
        self.over = self.host_nodes.copy()
        self.over[host.waits] = self.wait_nodes
        #: Which call launched each row of work, and when it ran.
        self.launch = _launch(place, host, rows)
        self.work_start, self.work_end = place.work.start_ns[rows], place.work.end_ns[rows]
        self.streams = place.work.stream[rows]

    def tie(self, which: int, nodes: Ints, to: Ints, *, lag_ns: Ints | int = 0, before: Mask | bool = False) -> None:
        """Make the `nodes` depend on the nodes `to` (of the repetition before if `before` says so)."""
        self.depends[which][nodes] = to
        self.lag_ns[which][nodes] = lag_ns
        self.before[which][nodes] = before

    def explained(self, nodes: Ints) -> Ints:
        """The earliest start in ns of these nodes by the dependencies within this repetition that are known so far."""
        latest = np.full(nodes.size, _NEVER)
        for depends, before, lag in zip(self.depends, self.before, self.lag_ns, strict=True):
            known = (depends[nodes] >= 0) & ~before[nodes]
            moment = self.end[np.maximum(depends[nodes], 0)] + lag[nodes]
            latest = np.where(known, np.maximum(latest, moment), latest)
        return latest

    def graph(self) -> Graph:
        """The finished graph. It uses the draft up: each column is freed once it is in order, to save memory."""
        del self.over, self.launch, self.work_start, self.work_end, self.streams
        order, extra = self._order(), self._unexplained()
        place = np.empty(self.size, np.int64)
        place[order] = np.arange(self.size)
        depends = [_all_alike(np.where(each >= 0, place[np.maximum(each, 0)], NOTHING)[order]) for each in self.depends]
        del place, self.depends
        for columns in (self.before, self.lag_ns):
            for which in range(3):
                columns[which] = _all_alike(columns[which][order])
        for name in ("start", "end", "duration", "gap_start", "gap_end", "loader_wait"):
            setattr(self, name, getattr(self, name)[order])
        call_row, work_row = (rows[order] for rows in self._sources())
        return Graph(
            place=self.place, kind=self._kind()[order],
            recorded_start_ns=self.start, recorded_end_ns=self.end, duration_ns=self.duration, extra_ns=extra[order],
            depends=(depends[0], depends[1], depends[2]),
            before=(self.before[0], self.before[1], self.before[2]),
            lag_ns=(self.lag_ns[0], self.lag_ns[1], self.lag_ns[2]), work_row=work_row, call_row=call_row,
            gap_start_ns=self.gap_start, gap_end_ns=self.gap_end,
            loader_wait_ns=_all_alike(self.loader_wait), awaited=self.awaited,
            period_ns=self.period.duration_ns, units=self.period.units, inferred=self.inferred,
        )  # fmt: skip

    def _kind(self) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
        return np.repeat(np.array([HOST, WAIT_END, WORK], np.int8), [self.hosts, self.waiting, self.works])

    def _order(self) -> Ints:
        """The nodes by start; at the same moment calls and their ends in program order, and work after its launch."""
        position = np.empty(self.size, np.int64)
        position[self.host_nodes] = 2 * self.host_nodes
        position[self.wait_nodes] = 2 * np.flatnonzero(self.host.waits) + 1
        position[self.work_nodes] = np.arange(self.works)
        return np.lexsort((position, self._kind() == WORK, self.start))

    def _unexplained(self) -> Ints:
        """Ns by which each node began later than its dependencies explain."""
        latest = np.full(self.size, _NEVER)
        for each, flags, lags in zip(self.depends, self.before, self.lag_ns, strict=True):
            moment = self.end[np.maximum(each, 0)]
            moment += lags
            moment[flags] -= self.period.duration_ns
            moment[each < 0] = _NEVER
            np.maximum(latest, moment, out=latest)
        late: Ints = np.maximum(self.end - self.duration - latest, 0)
        if not self.waiting:  # the host got ahead of the device, and is not held up between periods
            late[self.host_nodes[self.before[0][self.host_nodes]]] = 0
        late[self.free] = 0
        return late

    def _sources(self) -> tuple[Ints, Ints]:
        """For each node its row of `timeline.calls`, and its row of DeviceWork."""
        call_row, work_row = np.full(self.size, UNKNOWN), np.full(self.size, UNKNOWN)
        call_row[self.host_nodes] = self.host.rows
        call_row[self.wait_nodes] = self.host.rows[self.host.waits]
        work_row[self.work_nodes] = self.rows
        return call_row, work_row


def _all_alike(column: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """The column, held in memory as one number if all of its values are equal."""
    alike = column.size and bool((column == column[0]).all())
    return np.broadcast_to(column[:1].copy(), column.shape) if alike else column


def _launch(place: Place, host: HostCalls, rows: Ints) -> Ints:
    """Which call launched each of these rows of work? NOTHING where unknown, or where clocks contradict it."""
    launch = host.of_rows(place.work.launch[rows])
    if not len(host):
        return launch
    begun = host.start_ns[np.maximum(launch, 0)] <= place.work.start_ns[rows]
    return np.where((launch >= 0) & begun, launch, NOTHING)
