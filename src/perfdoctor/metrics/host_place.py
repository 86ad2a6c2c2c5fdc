"""Where did the time go on a run without a GPU? The training thread plays the device.

Its outermost ops are the work (its own ranges where no ops were recorded); what is left is idle, and the cause is what
the thread did meanwhile. Ops inside a loader's `__next__` are the loader's, not the training's. Collectives run on
threads of their library (gloo), which mark them: they are exposed while the training thread computes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from perfdoctor.findings import IDLE_CAUSES
from perfdoctor.metrics import host_names
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.idle_causes import HostActivity, driving_threads, host_activity
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.kernel_names import collective_kind
from perfdoctor.timeline.links import DeviceWork
from perfdoctor.timeline.model import UNKNOWN, Frame, Text, Timeline
from perfdoctor.timeline.steps import Marks, host_marks, host_steps

_CPU_COLLECTIVE = re.compile(r"^(gloo|mpi|ccl|ucc)[:_]|^c10d::|DistributedDataParallel.*(sync|wait)", re.IGNORECASE)
_TRANSPORT = re.compile(r"^(gloo|mpi|ccl|ucc):", re.IGNORECASE)
_NOTHING = np.empty(0, np.int64)
_NO_FLAGS = np.empty(0, np.bool_)
_NO_WORK = DeviceWork(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NO_FLAGS, _NO_FLAGS)


class HostPlace(Place):
    """A Place whose compute is the outermost ops of the training thread."""

    @cached_property
    def _threads(self) -> tuple[int, ...]:
        return driving_threads(self.timeline, self.rank, host_marks(self.timeline, self.rank))

    def rows(self, signal: str) -> Frame:
        """What the training thread did, in the whole recording."""
        frame = self.timeline[signal].of(rank=self.rank)
        return frame.take(np.isin(frame["thread"], self._threads))

    @cached_property
    def _ops(self) -> Intervals:
        ops = self.rows("ops")
        if len(ops):
            return Intervals.of(ops.start_ns, ops.end_ns) & self.window
        return self.host.visible & self.window

    @cached_property
    def recorded_collectives(self) -> Frame:
        """The library's own ranges, on whatever thread, as rows of collectives; the thread stands for the stream."""
        ranges = self.timeline.ranges.of(rank=self.rank)
        rows = ranges.take(ranges.name.matches(_TRANSPORT))
        unknown, no_text = np.full(len(rows), UNKNOWN, np.int64), Text.constant("", len(rows))
        taken = {name: rows.columns[name] for name in ("rank", "process", "start_ns", "end_ns", "name")}
        return Frame({
            **taken, "device": unknown, "stream": rows["thread"], "correlation": unknown,
            "kind": rows.name.mapped(collective_kind), "bytes": unknown, "group": no_text, "group_size": unknown,
            "data_type": no_text,
        })  # fmt: skip

    @cached_property
    def collectives(self) -> Frame:
        rows = self.recorded_collectives
        return rows.take(self.window.overlap_ns(rows.start_ns, rows.end_ns) > 0)

    @cached_property
    def communication(self) -> Intervals:
        rows = self.collectives
        return (Intervals.of(rows.start_ns, rows.end_ns) & self.window) | self._own_communication

    @cached_property
    def _own_communication(self) -> Intervals:
        """What the training thread itself does for collectives: starting them, waiting in DistributedDataParallel."""
        rows = [frame.take(frame.name.matches(_CPU_COLLECTIVE)) for frame in (self.rows("ops"), self.rows("ranges"))]
        found = Intervals.empty()
        for frame in rows:
            found = found | (Intervals.of(frame.start_ns, frame.end_ns) & self.window)
        return found

    @cached_property
    def compute(self) -> Intervals:
        explained = Intervals.empty()
        for pieces in self.host.explicit.values():
            explained = explained | pieces
        return self._ops - explained - self._own_communication

    @cached_property
    def idle_causes(self) -> Mapping[str, Intervals]:  # type: ignore[override]
        causes = dict.fromkeys(IDLE_CAUSES, Intervals.empty())
        rest = self.idle
        for cause, proven in self.host.explicit.items():
            causes[cause] = rest & proven
            rest = rest - proven
        for cause, proven in (("profiler", self.host.profiler), ("storage", self.host.files)):
            causes[cause] = causes[cause] | (rest & proven)
            rest = rest - proven
        if not self.host.ops_recorded:
            causes["unknown"] = rest
            return causes
        # The thread is in view: what it did outside of any op is Python, or whatever Python called. But in a backward
        # pass it waits for autograd's thread, and where no op is seen there, that thread was not recorded.
        backward = self.rows("ranges")
        backward = backward.take(backward.name.matches(host_names.BACKWARD))
        causes["unknown"] = rest & Intervals.of(backward.start_ns, backward.end_ns)
        causes["host_work"] = rest - causes["unknown"]
        return causes


def outermost(rows: Frame) -> Frame:
    """The rows that no other row of the same thread contains."""
    order = np.lexsort((-rows.end_ns, rows.start_ns, rows["thread"]))
    thread, start, end = rows["thread"][order], rows.start_ns[order], rows.end_ns[order]
    keep = np.ones(len(rows), dtype=bool)
    for each in np.unique(thread):
        of_thread = np.flatnonzero(thread == each)
        keep[of_thread[1:]] = start[of_thread[1:]] >= np.maximum.accumulate(end[of_thread])[:-1]
    return rows.take(np.sort(order[keep]))


def host_place(timeline: Timeline, rank: int, marks: Marks | None) -> Place | None:
    """The training thread of one rank as a Place; None where neither its ops nor its steps were recorded."""
    if not len(timeline.ops.of(rank=rank)) and marks is None:
        return None
    host: HostActivity = host_activity(timeline, rank, marks)
    steps = host_steps(marks)
    if steps.used:
        window = Intervals.single(int(steps.bounds[steps.first]), int(steps.bounds[steps.last]))
    else:
        ops = timeline.ops.of(rank=rank)
        if not len(ops):
            return None
        window = Intervals.single(int(ops.start_ns[0]), int(ops.end_ns.max()))
    return HostPlace(timeline, rank, None, window, steps, _NO_WORK, host)
