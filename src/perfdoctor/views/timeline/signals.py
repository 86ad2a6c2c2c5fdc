"""Which tracks do the recorded signals give, by device and stream, and by host thread?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.model.columns import Ints
from perfdoctor.model.device_work import SIGNALS as WORK
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.views.timeline.lanes import DrawnWindow, Lane, OfSignal, lane_of, split
from perfdoctor.vocabulary.signals import SIGNALS, host_events

#: Host threads of all ranks with tracks of their own; a screen shows some forty.
_MOST_THREADS = 32
#: In every rank the training thread and autograd's have tracks of their own.
_FEWEST_THREADS = 2

#: In the order of their tracks.
_ON_HOST = tuple(each for each in host_events("ranges", "ops", "functions", "calls") if SIGNALS[each].track)

Thread = tuple[int, int]
#: Of one rank: what a thread did, by signal, as rows of the signal's frame.
Threads = dict[Thread, dict[str, Ints]]


def device_lanes(timeline: Timeline, window: DrawnWindow) -> Mapping[tuple[int, int], list[Lane]]:
    """The tracks of each (rank, device), by kind, and within a kind the stream with most pieces first."""
    found: dict[tuple[int, int], list[Lane]] = {}
    for kind in WORK:
        frame = timeline[kind]
        streams = sorted(split(frame, window.rows(frame), "rank", "device", "stream"), key=lambda each: -each[1].size)
        for (rank, device, stream), rows in streams:
            found.setdefault((rank, device), []).append(
                lane_of(kind, f"stream {stream} · {SIGNALS[kind].track}", frame, rows, window)
            )
    return found


def collective_lanes(place: HostPlace, window: DrawnWindow) -> Iterator[Lane]:
    """Tracks of the collectives in the library's threads, on a `place` of a run without a GPU."""
    frame = place.recorded_collectives
    for (thread,), rows in split(frame, window.rows(frame), "stream"):
        yield lane_of("collectives", f"thread {thread} · {SIGNALS['collectives'].track}", frame, rows, window)


def host_lanes(timeline: Timeline, window: DrawnWindow) -> Mapping[int, list[Lane]]:
    """The tracks of each rank's host threads, busiest first; the least busy threads share one track a signal."""
    ranks: dict[int, Threads] = {}
    for kind in _ON_HOST:
        frame = timeline[kind]
        for (rank, process, thread), rows in split(frame, window.rows(frame), "rank", "process", "thread"):
            ranks.setdefault(rank, {}).setdefault((process, thread), {})[kind] = rows
    most = max(_MOST_THREADS // max(len(ranks), 1), _FEWEST_THREADS)
    return {rank: list(_of_rank(timeline, threads, most, window)) for rank, threads in ranks.items()}


def _of_rank(timeline: Timeline, threads: Threads, most: int, window: DrawnWindow) -> Iterator[Lane]:
    busiest = sorted(threads, key=lambda thread: (*_weight(timeline, threads[thread]), thread))
    own, others = busiest[:most], busiest[most:]
    if len(others) == 1:  # "1 other thread" takes as much room as its name
        own, others = busiest, []
    several = len({process for process, _ in threads}) > 1
    for thread in own:
        who = _called(timeline, thread, several=several)
        for kind, rows in threads[thread].items():
            yield lane_of(kind, f"{who} · {SIGNALS[kind].track}", timeline[kind], rows, window)
    for kind in _ON_HOST:
        quiet = [threads[thread][kind] for thread in others if kind in threads[thread]]
        if quiet:
            yield _together(kind, f"{len(quiet)} other threads · {SIGNALS[kind].track}", timeline[kind], quiet, window)


def _weight(timeline: Timeline, signals: Mapping[str, Ints]) -> tuple[int, int]:
    """Key to sort a thread by the time of its `signals`: the training thread first, then autograd's; others wait."""
    at_work = Intervals.empty()
    for kind in ("ranges", "ops", "calls"):
        if kind in signals:
            frame, rows = timeline[kind], signals[kind]
            at_work = at_work | Intervals.of(frame.start_ns[rows], frame.end_ns[rows])
    return -at_work.total_ns, -sum(rows.size for rows in signals.values())


def _called(timeline: Timeline, thread: Thread, *, several: bool) -> str:
    name = timeline.thread_names.get(thread, "")
    number = f"thread {thread[1]}"
    label = name if str(thread[1]) in name else f"{name} ({number})" if name else number
    return f"process {thread[0]}, {label}" if several else label


def _together(kind: str, title: str, frame: Frame, threads: list[Ints], window: DrawnWindow) -> Lane:
    """Several threads in one track, with the rows of each below those of the one before."""
    lanes = [lane_of(kind, title, frame, rows, window) for rows in threads]
    below = np.cumsum([0, *(int(lane.row.max(initial=0)) + 1 for lane in lanes)])
    at = np.argsort(np.concatenate([lane.start_ns for lane in lanes]), kind="stable")
    row = np.concatenate([lane.row.astype(np.int64) + base for lane, base in zip(lanes, below, strict=False)])[at]
    rows = np.concatenate([lane.pieces.rows for lane in lanes if isinstance(lane.pieces, OfSignal)])[at]
    return Lane(kind, title, OfSignal(frame, rows, window), row)
