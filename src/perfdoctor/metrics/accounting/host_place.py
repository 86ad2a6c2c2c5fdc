"""Where did the time go on a run without a GPU? The training thread stands in for the device.

Its outermost ops are the work (its own ranges where no ops were recorded); what is left is idle, and the cause is what
the thread did meanwhile. Ops inside a loader's `__next__` are the loader's, not the training's. Collectives run on
threads of their library (gloo), which mark them: they are exposed while the training thread computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from perfdoctor.metrics.accounting.driving_threads import LAUNCHING_GAP_NS, driving_rows, host_activity
from perfdoctor.metrics.accounting.idle_causes import Evidence, shared_out
from perfdoctor.model.cache import once_per_place, once_per_timeline
from perfdoctor.model.device_work import DeviceWork
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.steps import Marks, Steps, host_steps
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask, Text, Timeline
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import nccl as nccl_names
from perfdoctor.vocabulary.names import torch as torch_names

_NEVER = np.iinfo(np.int64).max
#: Without a core a thread is for as long as another may keep it: a slice of 3 ms (Linux, base_slice_ns), and up to the
#: next tick, 4 ms later (CONFIG_HZ=250).
WITHOUT_CORE_NS = 7_000_000


class HostPlace(Place, frozen=True):
    """A Place whose compute is the outermost ops of the training thread.

    Its `work` is what no call launched: the collectives, and the ends of its steps, which take no time.
    """

    def rows(self, signal: str) -> Frame:
        """The rows of the training thread in the whole recording."""
        return driving_rows(self.timeline, self.rank, signal)

    @once_per_place
    def recorded(self, signal: str) -> Frame:
        """The collectives, which are the ranges that their library marks, thread as stream; other signals are empty."""
        if signal != "collectives":
            return Frame.empty(signal)
        rows = _transport(self.timeline, self.rank)
        unknown, no_text = np.full(len(rows), UNKNOWN, np.int64), Text.constant("", len(rows))
        taken = {name: rows.columns[name] for name in ("rank", "process", "start_ns", "end_ns", "name")}
        return Frame({
            **taken, "device": unknown, "stream": rows["thread"], "correlation": unknown,
            "kind": rows.name.mapped(nccl_names.collective_kind), "bytes": unknown, "group_name": no_text,
            "group_size": unknown, "data_type": no_text, "blocks": unknown, "sent_bytes": unknown,
            "peers": no_text,
        })  # fmt: skip

    @once_per_place
    def in_window(self, signal: str) -> Mask:
        rows = self.recorded(signal)
        return self.window.overlap_ns(rows.start_ns, rows.end_ns) > 0

    @cached_property
    def communication(self) -> Intervals:
        """When collectives ran, or were on the way between the training thread and the library's (`handed_over`)."""
        sending = self.collectives.intervals | self.handed_over
        return (sending & self.window) | self.own_communication

    @cached_property
    def asks(self) -> Frame:
        """The training thread's calls that start the recorded collectives, one each; none where some are missing."""
        ops, sent = self.rows("ops"), self.recorded_collectives
        asks = ops.named(nccl_names.STARTS_COLLECTIVE)
        fit = len(asks) == len(sent) and bool((asks.start_ns <= sent.start_ns).all())
        return asks if fit else asks.take(np.zeros(len(asks), dtype=bool))

    @cached_property
    def handed_over(self) -> Intervals:
        """When collectives were on the way between threads: from a call's end to its start, and back to the next op.

        The way back counts only where the training thread ran nothing between its call and the end: then it had waited.
        How much of a long pause is the way is unknown, so such a pause is left out.
        """
        asks, sent, ops = self.asks, self.recorded_collectives, self.rows("ops")
        if not len(asks):
            return Intervals.empty()
        following = np.append(ops.start_ns, _NEVER)[np.searchsorted(ops.start_ns, asks.end_ns)]
        back = (following > sent.end_ns) & (following - sent.end_ns < LAUNCHING_GAP_NS)
        there = Intervals.of(asks.end_ns, sent.start_ns) | Intervals.of(sent.end_ns[back], following[back])
        return there - sent.intervals

    @cached_property
    def own_communication(self) -> Intervals:
        """When the training thread itself works for collectives: starts them, or waits in DistributedDataParallel.

        A message that gloo sends or receives is marked on the thread that asked for it, which goes on meanwhile.
        """
        ops, ranges = (self.rows(signal).named(nccl_names.ON_HOST) for signal in ("ops", "ranges"))
        own = ranges.take(~ranges.name.matches(nccl_names.HOST_MESSAGE))
        return (ops.intervals | own.intervals) & self.window

    @cached_property
    def compute(self) -> Intervals:
        ops = self.rows("ops")
        if only_ranges(self.timeline):
            return Intervals.empty()
        working = (ops.intervals if len(ops) else self.host.visible) & self.window
        return working - Intervals.union(self.host.explicit.values()) - self.own_communication

    @cached_property
    def idle_causes(self) -> Mapping[str, Intervals]:
        none = Intervals.empty()

        def working(rest: Intervals) -> Intervals:
            """The part of `rest` in which the thread ran Python, or what it called; known where ops were recorded."""
            return rest - self._unseen_in_backward(rest) if self.host.ops_recorded else none

        return shared_out(self.idle, Evidence(self.host, self.host.once, none, none, none, none, working))

    def _unseen_in_backward(self, idle: Intervals) -> Intervals:
        """The part of `idle` in backward passes whose cause is unknown.

        A thread that ran no node itself waited for autograd's, which was not recorded. From one node to the next the
        engine takes microseconds: in a long pause something else ran, or the machine took the processor away.
        """
        ops, ranges = self.rows("ops"), self.rows("ranges")
        nodes = ops.named(torch_names.AUTOGRAD_NODE)
        passes = ranges.named(torch_names.BACKWARD)
        own = nodes.intervals.overlap_ns(passes.start_ns, passes.end_ns) > 0
        pauses = idle & Intervals.of(passes.start_ns[own], passes.end_ns[own])
        long = pauses.durations_ns >= LAUNCHING_GAP_NS
        return (idle & Intervals.of(passes.start_ns[~own], passes.end_ns[~own])) | Intervals(
            pauses.starts[long], pauses.ends[long]
        )


def host_places(run: Run) -> tuple[HostPlace, ...]:
    """The training threads of a run without a GPU; empty where one was recorded."""
    return tuple(place for place in run.places if isinstance(place, HostPlace))


def launches_gpu_work(run: Run) -> bool:
    """Did a run without a recorded GPU, whose training threads stand in for it, launch work on one all the same?

    Ranges are no work: where nothing else was recorded beside a GPU, that is where the work was. So it is where a file
    ends early that names a GPU: launches and kernels stand behind the ops.
    """
    timeline = run.timeline
    calls, ops = timeline.calls, timeline.ops
    launches = calls.name.matches(cuda_names.LAUNCH).any() or ops.name.matches(torch_names.GPU_ONLY).any()
    is_lost = any(source.cut_off for source in timeline.sources) and any(device.name for device in timeline.devices)
    return bool(host_places(run) and (launches or is_lost or only_ranges(timeline)))


def only_ranges(timeline: Timeline) -> bool:
    """Was nothing but ranges recorded beside a GPU: no ops, and no calls that launch?"""
    beside_gpu = any(device.name for device in timeline.devices)
    return beside_gpu and not len(timeline.ops) and not timeline.calls.name.matches(cuda_names.LAUNCH).any()


def host_place(timeline: Timeline, rank: int, marks: Marks | None) -> Place | None:
    """The training thread of one rank as a Place; None where neither its ops nor its steps were recorded."""
    ops = timeline.ops.of(rank=rank)
    if not len(ops) and marks is None:
        return None
    host, steps = host_activity(timeline, rank), host_steps(marks)
    if steps.used:
        window = Intervals.of(steps.used_bounds[:1], steps.used_bounds[-1:])
    elif not len(ops):
        return None
    else:
        window = Intervals.single(int(ops.start_ns[0]), int(ops.end_ns.max()))
    return HostPlace(timeline, rank, None, window, steps, _work(timeline, rank, steps), host)


def narrowed_to(place: Place, window: Intervals, steps: Steps, asked: Intervals | None = None) -> Place:
    """The place with another window and other steps; `asked`: when the host asked for them, if a range is analysed."""
    if isinstance(place, HostPlace):
        place = replace(place, work=_work(place.timeline, place.rank, steps))
    return replace(place, window=window, steps=steps, asked=asked)


@once_per_timeline
def _transport(timeline: Timeline, rank: int) -> Frame:
    """The collectives that the library's threads send, each until the training thread had its result."""
    sent = timeline.ranges.of(rank=rank).named(nccl_names.HOST_TRANSPORT)
    return sent.with_columns(end_ns=_over_ns(sent, _standing_still(timeline, rank)))


def _standing_still(timeline: Timeline, rank: int) -> Intervals:
    """The long pauses between the training thread's ops; calls that start collectives are no ops here."""
    ops = driving_rows(timeline, rank, "ops")
    asks = ops.named(nccl_names.ON_HOST)
    busy = ops.intervals - asks.intervals
    long = busy.starts[1:] - busy.ends[:-1] > LAUNCHING_GAP_NS
    return Intervals(busy.ends[:-1][long], busy.starts[1:][long])


def _over_ns(sent: Frame, still: Intervals) -> Ints:
    """When each collective was over: at the end that its thread marked, or when the training thread went on before.

    The training thread, once woken, may take the core of the library's thread, which then marks the end late. It had
    waited for the collective if it stood still (`still`) for longer than that, up to a moment at which it was running.
    """
    if not still:
        return sent.end_ns
    pause = np.searchsorted(still.ends, sent.end_ns, side="right") - 1
    went_on = still.ends[np.maximum(pause, 0)]
    waited = went_on - np.maximum(still.starts[np.maximum(pause, 0)], sent.start_ns)
    late = sent.end_ns - went_on
    return np.where((pause >= 0) & (late <= np.minimum(waited, WITHOUT_CORE_NS)), went_on, sent.end_ns)


def _work(timeline: Timeline, rank: int, steps: Steps) -> DeviceWork:
    """The collectives of a rank, and the ends of its steps as work that takes no time."""
    rows, edges = _transport(timeline, rank), steps.even_bounds[1:]
    start = np.concatenate((rows.start_ns, edges))
    order = np.argsort(start, kind="stable")
    unknown, no = np.full(order.size, UNKNOWN, np.int64), np.zeros(order.size, dtype=bool)
    stream = np.concatenate((rows["thread"], np.full(edges.size, UNKNOWN, np.int64)))[order]
    end = np.concatenate((rows.end_ns, edges))[order]
    none = np.empty(0, np.int64)
    collectives = np.flatnonzero(stream != UNKNOWN)
    return DeviceWork(
        start[order], end, stream, unknown, no, no,
        {"kernels": none, "collectives": collectives, "copies": none},
    )  # fmt: skip
