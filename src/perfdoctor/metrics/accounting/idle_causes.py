"""Why was the device idle? Each idle stretch is explained by what the host did that issues its work.

The work that ended the stretch was launched by some call. If that call came long before, the work was queued already
and the host is not to blame (`queue_latency`). Otherwise the host was late, and what its launching threads did from the
start of the stretch until that call is the cause: waiting for a batch, for the device, for memory, for a file, issuing
other work (`launch_bound`), or running code that issues nothing (`host_work`). What the recording cannot prove is
`unknown`. The parts are cut with interval algebra, so they sum to the idle time exactly.

```
device   ██████░░░░░░░░░░░░░░░░██████        idle [a, b)
host        ▓▓ sync ▓▓│ next batch │launch   launched at s
                a     └ input_wait ┘s  b
```
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.accounting.queued import before_first_call, graphs_in_flight, launch_latency_ns
from perfdoctor.model.device_work import DeviceWork
from perfdoctor.model.host_activity import HostActivity
from perfdoctor.model.intervals import Intervals, Nanoseconds
from perfdoctor.model.steps import Marks
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask, Timeline
from perfdoctor.records.findings import IDLE_CAUSES
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import loaders as loader_names
from perfdoctor.vocabulary.names import system as system_names
from perfdoctor.vocabulary.names import torch as torch_names

#: A thread that issues eager PyTorch work calls the CUDA runtime every few microseconds, under a profiler with stacks
#: every few hundred. A stretch of a millisecond without any call issues nothing: it is other code.
ISSUING_GAP_NS = 1_000_000
#: Between two queued kernels lie microseconds; across streams and devices, tens. What is queued and still does not
#: start for a millisecond waits for something that was not recorded.
_LONGEST_QUEUE_LATENCY_NS = 1_000_000
#: Timestamps of host and device are aligned by the tools to a few microseconds.
_CLOCK_SLACK_NS = 20_000
#: A thread that issued less than this share of the launches does not drive the device (a loader that copies a batch).
_DRIVING_SHARE = 0.01


def host_activity(timeline: Timeline, rank: int, marks: Marks | None) -> HostActivity:
    """Read one rank's host rows once, for all its devices."""
    threads = driving_threads(timeline, rank, marks)
    calls, ops, ranges, functions, os_calls = (
        _of_threads(timeline[signal].of(rank=rank), threads)
        for signal in ("calls", "ops", "ranges", "functions", "os_calls")
    )
    overheads = timeline["overheads"].of(rank=rank)
    own = np.isin(overheads["thread"], [UNKNOWN, *threads])
    return HostActivity(
        explicit={
            "input_wait": _named(loader_names.INPUT_WAIT, ranges, ops)
            | _named(loader_names.INPUT_WAIT_FUNCTION, functions),
            "garbage_collection": _named(system_names.GARBAGE_COLLECTION, ranges, ops)
            | _named(system_names.GARBAGE_COLLECTION_FUNCTION, functions),
            "storage": _named(torch_names.STORAGE, ranges, ops, functions),
            "compilation": _named(torch_names.COMPILATION, ranges, ops, functions)
            | _named(cuda_names.MODULE_LOADING_CALL, calls),
            "peer_wait": _named(torch_names.PEER_WAIT, ranges, ops)
            | _named(torch_names.PEER_WAIT_FUNCTION, functions)
            | _named(system_names.MPI_WAIT, ranges, ops),
            "allocator": _named(cuda_names.ALLOCATOR_CALL, calls),
        },
        profiler=_covered(overheads.take(own)),
        issuing=_issuing(calls, threads),
        files=_named(system_names.FILE_CALL, os_calls),
        visible=_covered(ops) | _covered(below_step(ranges, marks)) | _covered(below_step(functions, marks)),
        between_steps=_between(marks),
        blocking=_blocking_by_name(timeline.calls, rank, threads),
        ops_recorded="ops" in timeline.recorded and len(ops) > 0,
        graph_nodes_recorded=not timeline.kernels.of(rank=rank)["is_graph"].any(),
        in_view=not timeline.recorded.isdisjoint(("ops", "ranges", "os_calls")),
    )  # fmt: skip


def driving_threads(timeline: Timeline, rank: int, marks: Marks | None) -> tuple[int, ...]:
    """The threads of a rank that issue its work, and the one that carries the step marks."""
    calls = timeline.calls.of(rank=rank)
    threads, counts = np.unique(calls["thread"], return_counts=True)
    driving = set(threads[counts >= _DRIVING_SHARE * counts.sum()].tolist())
    if marks is not None:
        driving.add(marks.thread)
    for signal in ("ops", "ranges"):  # without calls or marks: the thread that says most
        if not driving:
            threads, counts = np.unique(timeline[signal].of(rank=rank)["thread"], return_counts=True)
            driving = set(threads[counts == counts.max(initial=0)].tolist())
    return tuple(sorted(driving))


def _of_threads(frame: Frame, threads: tuple[int, ...]) -> Frame:
    return frame.take(np.isin(frame["thread"], threads)) if len(frame) else frame


def _covered(frame: Frame) -> Intervals:
    return Intervals.of(frame.start_ns, frame.end_ns)


def _named(pattern: re.Pattern[str], *frames: Frame) -> Intervals:
    found = Intervals.empty()
    for frame in frames:
        found = found | _covered(frame.take(frame.name.matches(pattern)))
    return found


def _issuing(calls: Frame, threads: tuple[int, ...]) -> Intervals:
    """Per thread, calls and the pauses between them that are too short for anything but issuing the next."""
    pieces = Intervals.empty()
    for thread in threads:
        rows = calls.of(thread=thread)
        if not len(rows):
            continue
        reach = np.maximum.accumulate(rows.end_ns)
        pause = rows.start_ns[1:] - reach[:-1]
        bridged = np.where(pause < ISSUING_GAP_NS, rows.start_ns[1:], reach[:-1])
        pieces = pieces | Intervals.of(rows.start_ns, np.append(np.maximum(reach[:-1], bridged), reach[-1]))
    return pieces


def below_step(frame: Frame, marks: Marks | None) -> Frame:
    """Rows that say more than "a step is running": not the marks themselves and nothing that spans a whole step."""
    keep = ~frame.name.matches(torch_names.PROFILER_STEP)
    if marks is not None and marks.starts.size:
        first = np.searchsorted(marks.starts, frame.start_ns, side="left")
        spans = np.searchsorted(marks.starts, frame.end_ns, side="left") - first
        keep &= spans <= 1
        is_mark = np.isin(frame.start_ns, marks.starts) & np.isin(frame.end_ns, marks.ends)
        keep &= ~is_mark
    return frame.take(keep)


def _between(marks: Marks | None) -> Intervals:
    """Between the end of one marked step and the start of the next, where ranges leave room."""
    if marks is None or marks.starts.size < 2 or marks.found_by != "user-range":
        return Intervals.empty()
    return Intervals.of(marks.ends[:-1], marks.starts[1:])


@dataclass(frozen=True)
class _Stretches:
    """Idle stretches `[start, end)` with the call that ended each: when it was made, when it returned.

    `was_launched` is False where no call was recorded; then the other columns mean nothing.
    """

    start: Nanoseconds
    end: Nanoseconds
    launched_at: Nanoseconds
    returned_at: Nanoseconds
    was_launched: Mask
    ends_with_batch: Mask
    queued_before_recording: Mask
    call: Nanoseconds


def _stretches(idle: Intervals, work: DeviceWork, calls: Frame) -> _Stretches:
    row = np.minimum(np.searchsorted(work.start_ns, idle.ends, side="left"), max(len(work) - 1, 0))
    ends_here = work.start_ns[row] >= idle.ends
    call = np.where(ends_here, work.launch[row], UNKNOWN)
    was_launched = call != UNKNOWN
    safe = np.maximum(call, 0)
    none = np.zeros(len(idle), dtype=np.int64)
    return _Stretches(
        start=idle.starts,
        end=idle.ends,
        launched_at=calls.start_ns[safe] if len(calls) else none,
        returned_at=calls.end_ns[safe] if len(calls) else none,
        was_launched=was_launched,
        ends_with_batch=ends_here & work.is_h2d[row],
        queued_before_recording=ends_here & ~was_launched & before_first_call(work)[row],
        call=call,
    )


def idle_causes(idle: Intervals, work: DeviceWork, calls: Frame, host: HostActivity) -> dict[str, Intervals]:
    """Which instants of `idle` had which cause: disjoint, together exactly `idle`. Keys are findings.IDLE_CAUSES."""
    causes = dict.fromkeys(IDLE_CAUSES, Intervals.empty())
    if not idle or not len(work):
        return {**causes, "unknown": idle}
    stretches = _stretches(idle, work, calls)
    patience = 3 * max(launch_latency_ns(work, calls), 1_000)
    late = stretches.was_launched & (stretches.launched_at > stretches.start)
    waited = stretches.end - stretches.launched_at
    queued = (stretches.was_launched & ~late & (waited > patience)) | stretches.queued_before_recording
    prompt = stretches.was_launched & ~late & (waited <= patience)

    # Where the host was late it is to blame until its call returned, or until the work should have started.
    to_blame = np.minimum(stretches.end, np.maximum(stretches.launched_at + patience, stretches.returned_at))
    host_late = _pieces(stretches.start, to_blame, late)
    in_queue = _pieces(stretches.start, stretches.end, queued) | _pieces(to_blame, stretches.end, late)
    causes["queue_latency"] = Intervals.of(*_shorter(in_queue, _LONGEST_QUEUE_LATENCY_NS))
    if host.graph_nodes_recorded:
        causes["queue_latency"] |= in_queue & graphs_in_flight(work, calls)
    # At the recording's edge, what ran before is not in it, nor what the queue waited for: that tells nothing.
    causes["queue_latency"] |= _pieces(stretches.start, stretches.end, stretches.queued_before_recording)
    causes["unknown"] = idle_without_call(stretches, queued) | (in_queue - causes["queue_latency"])

    blocking = calls.take(blocking_rows(host, work))
    after_sync = _begun_under_sync(stretches, blocking) & late
    blocking_copy = prompt & _launched_by_blocking(stretches, work)
    causes["host_sync"] = _pieces(stretches.start, stretches.end, blocking_copy)
    at_once = _pieces(stretches.start, stretches.end, prompt & ~blocking_copy)
    causes["launch_bound" if host.in_view else "queue_latency"] |= at_once
    refill = _pieces(stretches.start, stretches.end, after_sync)
    _blame_host(causes, host_late, stretches, host, blocked=_covered(blocking), refill=refill)
    # A loader's wait and the profiler's own flushes also show where no call tells who launched the work.
    causes["unknown"] = _claim(causes, "input_wait", causes["unknown"] & host.explicit["input_wait"], causes["unknown"])
    causes["unknown"] = _claim(causes, "profiler", causes["unknown"] & host.profiler, causes["unknown"])
    return causes


def idle_without_call(stretches: _Stretches, queued: Mask) -> Intervals:
    return _pieces(stretches.start, stretches.end, ~stretches.was_launched & ~queued)


def _shorter(pieces: Intervals, limit_ns: int) -> tuple[Nanoseconds, Nanoseconds]:
    keep = pieces.durations_ns < limit_ns
    return pieces.starts[keep], pieces.ends[keep]


def _pieces(starts: Nanoseconds, ends: Nanoseconds, mask: Mask) -> Intervals:
    return Intervals.of(starts[mask], ends[mask])


def _claim(causes: dict[str, Intervals], cause: str, part: Intervals, rest: Intervals) -> Intervals:
    """Give `part` to `cause`; returns what remains of `rest`."""
    causes[cause] = causes[cause] | part
    return rest - part


def _blame_host(
    causes: dict[str, Intervals],
    rest: Intervals,
    stretches: _Stretches,
    host: HostActivity,
    *,
    blocked: Intervals,
    refill: Intervals,
) -> None:
    """Share out the time in which the host was late, strongest evidence first."""
    for cause, proven in host.explicit.items():
        rest = _claim(causes, cause, rest & proven, rest)
    rest = _claim(causes, "profiler", rest & host.profiler, rest)
    rest = _claim(causes, "host_sync", rest & blocked, rest)
    # A sync drained the queue: until it is refilled, issuing is the price of that sync.
    rest = _claim(causes, "host_sync", rest & refill & host.issuing, rest)
    if host.in_view:  # calls alone do not tell issuing from other code between two calls
        rest = _claim(causes, "launch_bound", rest & host.issuing, rest)
    rest = _claim(causes, "storage", rest & host.files, rest)
    before_batch = _pieces(stretches.start, stretches.end, stretches.ends_with_batch) & host.between_steps
    rest = _claim(causes, "input_wait", rest & before_batch - host.visible, rest)
    rest = _claim(causes, "host_work", rest & host.visible, rest)
    if host.ops_recorded:  # the thread is in view and ran no op: Python code, or whatever it called
        rest = _claim(causes, "host_work", rest, rest)
    causes["unknown"] = causes["unknown"] | rest


def _blocking_by_name(calls: Frame, rank: int, threads: tuple[int, ...]) -> Ints:
    own = (calls["rank"] == rank) & np.isin(calls["thread"], threads)
    return np.flatnonzero(own & calls.name.matches(cuda_names.BLOCKING_CALL))


def blocking_rows(host: HostActivity, work: DeviceWork) -> Ints:
    """Rows of `timeline.calls` in which the host waits for the device: by name, and copies to pageable memory."""
    copying = work.launch[work.is_blocking_copy & (work.launch != UNKNOWN)]
    rows: Ints = np.union1d(host.blocking, copying)
    return rows


def _begun_under_sync(stretches: _Stretches, blocking: Frame) -> Mask:
    """Did the device run dry while the host stood in a blocking call that had begun while it was busy?"""
    if not len(blocking):
        return np.zeros(stretches.start.size, dtype=bool)
    order = np.argsort(blocking.start_ns, kind="stable")
    starts, reach = blocking.start_ns[order], np.maximum.accumulate(blocking.end_ns[order])
    last = np.searchsorted(starts, stretches.start, side="left") - 1
    return (last >= 0) & (reach[np.maximum(last, 0)] + _CLOCK_SLACK_NS >= stretches.start)


def _launched_by_blocking(stretches: _Stretches, work: DeviceWork) -> Mask:
    """Is the work that ended the stretch a copy that the host waits for (`.item()`, `.cpu()`)?"""
    blocking_copies = work.launch[work.is_blocking_copy & (work.launch != UNKNOWN)]
    return np.isin(stretches.call, blocking_copies) & stretches.was_launched
