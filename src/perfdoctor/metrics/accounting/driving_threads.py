"""Which threads of a rank drive its device, and what did they do?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfdoctor.metrics.accounting import first_use
from perfdoctor.metrics.accounting.idle_causes import ON_HOST, PROOFS, Proof
from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import HostActivity
from perfdoctor.model.steps import Marks, host_marks
from perfdoctor.model.timeline import UNKNOWN, Frame, Timeline
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import system as system_names
from perfdoctor.vocabulary.names import torch as torch_names

#: A thread that launches eager PyTorch work calls the CUDA runtime every few microseconds, under a profiler with stacks
#: every few hundred. A stretch of a millisecond without any call launches nothing: it is other code.
LAUNCHING_GAP_NS = 1_000_000
#: A thread that made less than this share of the launches does not drive the device (a loader that copies a batch).
_DRIVING_SHARE = 0.01


@once_per_timeline
def host_activity(timeline: Timeline, rank: int) -> HostActivity:
    """What the driving threads of one rank did, for all its devices."""
    threads, marks = driving_threads(timeline, rank), host_marks(timeline, rank)
    rows = {signal: driving_rows(timeline, rank, signal) for signal in ON_HOST}
    calls, ops, ranges, functions = (rows[signal] for signal in ("calls", "ops", "ranges", "functions"))
    overheads = timeline["overheads"].of(rank=rank)
    overheads = overheads.take(np.isin(overheads["thread"], [UNKNOWN, *threads]))
    loading = overheads.name.matches(cuda_names.LOADING_OVERHEAD)
    profiler = ~loading & ~overheads.name.matches(cuda_names.QUEUE_FULL_OVERHEAD)
    files = rows["os_calls"].named(system_names.FILE_CALL).intervals
    own_calls = (timeline.calls["rank"] == rank) & np.isin(timeline.calls["thread"], threads)
    launching = _launching(calls, threads)
    return HostActivity(
        explicit={proof.cause: _named(proof, rows) for proof in PROOFS if proof.names},
        profiler=overheads.take(profiler).intervals,
        in_calls=calls.intervals,
        launching=launching,
        once=first_use.first_uses(timeline, rank)
        | first_use.initialisation(calls)
        | first_use.captures(calls)
        | first_use.compilations(rows["os_calls"], calls)
        | overheads.take(loading).intervals,
        first_ops=first_use.first_ops(ops) - launching,
        # What is read between the start of another process and its end comes from that process.
        files=files - first_use.awaited_children(rows["os_calls"], calls),
        visible=ops.intervals | below_step(ranges, marks).intervals | below_step(functions, marks).intervals,
        between_steps=_between(marks),
        blocking=np.flatnonzero(own_calls & timeline.calls.name.matches(cuda_names.BLOCKING_CALL)),
        ops_recorded="ops" in timeline.recorded and len(ops) > 0,
        graph_nodes_recorded=not timeline.kernels.of(rank=rank)["is_graph"].any(),
        in_system=rows["os_calls"].intervals if len(rows["os_calls"]) else None,
        in_view=not timeline.recorded.isdisjoint(("ops", "ranges", "os_calls")),
    )  # fmt: skip


@once_per_timeline
def launching_threads(timeline: Timeline, rank: int) -> tuple[int, ...]:
    """The threads of a rank that launch its work; where no launch was recorded, those that make its calls."""
    calls = timeline.calls.of(rank=rank)
    # Threads that watch or copy call often, and launch nothing.
    launches = calls.take(calls.name.matches(cuda_names.LAUNCH) | calls.name.matches(cuda_names.MEMSET))
    threads, counts = np.unique((launches if len(launches) else calls)["thread"], return_counts=True)
    return tuple(threads[counts >= _DRIVING_SHARE * counts.sum()].tolist())


@once_per_timeline
def driving_threads(timeline: Timeline, rank: int) -> tuple[int, ...]:
    """The threads that launch a rank's work, and the one that carries its step marks."""
    driving, marks = set(launching_threads(timeline, rank)), host_marks(timeline, rank)
    if marks is not None:
        driving.add(marks.thread)
    for signal in ("ops", "ranges"):  # without calls or marks: the thread that says most
        if not driving:
            threads, counts = np.unique(timeline[signal].of(rank=rank)["thread"], return_counts=True)
            driving = set(threads[counts == counts.max(initial=0)].tolist())
    return tuple(sorted(driving))


def driving_rows(timeline: Timeline, rank: int, signal: str) -> Frame:
    """The rows of the driving threads of one rank, in the whole recording."""
    rows = timeline[signal].of(rank=rank)
    return rows.take(np.isin(rows["thread"], driving_threads(timeline, rank)))


def _named(proof: Proof, rows: Mapping[str, Frame]) -> Intervals:
    """When a row ran whose name proves the cause; `rows` by signal."""
    named = (rows[signal].named(pattern) for pattern, signals in proof.names.items() for signal in signals)
    return Intervals.union(frame.intervals for frame in named)


def _launching(calls: Frame, threads: tuple[int, ...]) -> Intervals:
    """When these threads made calls, with pauses between two calls that are too short for anything but launching."""
    pieces = Intervals.empty()
    for thread in threads:
        rows = calls.of(thread=thread)
        if not len(rows):
            continue
        reach = np.maximum.accumulate(rows.end_ns)
        pause = rows.start_ns[1:] - reach[:-1]
        bridged = np.where(pause < LAUNCHING_GAP_NS, rows.start_ns[1:], reach[:-1])
        pieces = pieces | Intervals.of(rows.start_ns, np.append(np.maximum(reach[:-1], bridged), reach[-1]))
    return pieces


def below_step(frame: Frame, marks: Marks | None) -> Frame:
    """The rows that say more than "a step is running": without the marks of steps and what spans a whole step."""
    keep = ~frame.name.matches(torch_names.PROFILER_STEP)
    if marks is not None and marks.starts.size:
        begun, over = (np.searchsorted(marks.starts, edge, side="left") for edge in (frame.start_ns, frame.end_ns))
        is_mark = np.isin(frame.start_ns, marks.starts) & np.isin(frame.end_ns, marks.ends)
        keep &= (over - begun <= 1) & ~is_mark
    return frame.take(keep)


def _between(marks: Marks | None) -> Intervals:
    """The time from the end of one marked step to the start of the next, where user ranges leave room."""
    if marks is None or marks.starts.size < 2 or marks.found_by != "user-range":
        return Intervals.empty()
    return Intervals.of(marks.ends[:-1], marks.starts[1:])
