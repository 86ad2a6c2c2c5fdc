"""Where on the host was work of the device asked for: when, on which thread, in which op, in which own function?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.host.enclosing import Nested, lines_of, ops_of
from perfdoctor.model.intervals import Intervals, Nanoseconds
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints


@dataclass(frozen=True)
class Asked:
    """For each row of device work the host's moment and thread; UNKNOWN where its call was not recorded."""

    at_ns: Nanoseconds
    thread: Ints


def asked(calls: Frame, call: Ints) -> Asked:
    """`call`: the row of `calls` that launched each work, UNKNOWN for none."""
    if not len(calls):
        return Asked(np.full(call.size, UNKNOWN), np.full(call.size, UNKNOWN))
    known, row = call != UNKNOWN, np.maximum(call, 0)
    return Asked(
        np.where(known, calls.start_ns[row], UNKNOWN), np.where(known, calls["thread"][row], UNKNOWN)
    )  # fmt: skip


def in_op(run: Run, rank: int, when: Asked) -> Ints:
    """The innermost op around each launch, a row of `ops_of(run, rank)`."""
    return _inside(ops_of(run, rank), when)


def in_line(run: Run, rank: int, when: Asked) -> Ints:
    """The innermost own function around each launch, a row of `lines_of(run, rank)`.

    A thread without functions of its own (autograd's) works for the one that has most: what stands there and waits,
    mostly the function that calls `backward()`, is what asked.
    """
    lines = lines_of(run, rank)
    if not lines.threads:
        return np.full(when.at_ns.size, UNKNOWN, dtype=np.int64)
    main = max(lines.threads, key=lambda thread: int(lines.rows.duration_ns[lines.threads[thread]].sum()))
    has_own = np.isin(when.thread, list(lines.threads))
    stands_for = np.where(has_own | (when.thread == UNKNOWN), when.thread, main)
    return _inside(lines, Asked(when.at_ns, stands_for))


def _inside(rows: Nested, when: Asked) -> Ints:
    found = rows.innermost(when.at_ns, when.thread)
    return np.where(when.thread == UNKNOWN, UNKNOWN, found)


def host_window(place: Place) -> Intervals:
    """When the host asked for the work of this place's window: it may be several steps ahead of the device.

    From the launch of the first work in the window to the launch of the first work behind it, on the stream that has
    most work (batches are copied ahead on another one); the window itself where launches were not recorded.
    """
    if place.asked is not None:
        return place.asked
    if place.device is None or not place.window or not len(place.work):
        return place.window
    work, calls = place.work, place.timeline.calls
    streams, counts = np.unique(work.stream, return_counts=True)
    main = (work.launch != UNKNOWN) & (work.stream == streams[counts.argmax()])
    start, call = work.start_ns[main], work.launch[main]
    edges = place.steps.even_bounds[[0, -1]] if place.steps.used else (place.window.starts[0], place.window.ends[-1])
    first, behind = np.searchsorted(start, edges).tolist()
    if first >= behind:
        return place.window
    end = calls.start_ns[call[behind]] if behind < call.size else calls.end_ns[call[first:]].max()
    return Intervals.single(int(calls.start_ns[call[first]]), int(end)) or place.window
