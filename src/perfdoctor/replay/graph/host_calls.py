"""What did the host call in the steps that are simulated, in which order, and in which calls did it wait?"""

from __future__ import annotations

import re
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.metrics.accounting.driving_threads import launching_threads
from perfdoctor.metrics.accounting.queued import blocking_rows, full_queue_launches, waits_to_free
from perfdoctor.model.host_rows import nested_rows
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask
from perfdoctor.replay.graph.graph import NOTHING
from perfdoctor.replay.graph.period import Period

#: A thread that did nothing for so long, while another one of the program did, was woken by it.
_WOKEN_NS = 50_000
_NEVER = np.iinfo(np.int64).min
_Kind = TypeVar("_Kind", bound=np.generic)


class HostCalls(Struct, frozen=True):
    """Outermost calls of the driving threads in the period, by start: their rows in `timeline.calls`, which wait.

    Of a closed period the last one was not recorded, and its row is UNKNOWN: there the host waits for all work.
    """

    rows: Ints
    start_ns: Ints
    end_ns: Ints
    thread: Ints
    waits: Mask
    #: Which of those that wait are launches that wait for room in the device's queue.
    for_room: Mask
    #: When the next period's first call is made.
    again_ns: int
    #: Every call of these threads, by row, and the row of the outermost call that it is part of.
    inner_rows: Ints
    outer_rows: Ints

    def __len__(self) -> int:
        return int(self.rows.size)

    def of_rows(self, rows: Ints) -> Ints:
        """Which of these calls made, or is, each of these rows of `timeline.calls`? NOTHING where none."""
        if not len(self) or not self.inner_rows.size:
            return np.full(rows.size, NOTHING)
        at = np.minimum(np.searchsorted(self.inner_rows, rows), self.inner_rows.size - 1)
        outer = np.where(self.inner_rows[at] == rows, self.outer_rows[at], NOTHING)
        recorded = self.rows[self.rows != UNKNOWN]
        place = np.minimum(np.searchsorted(recorded, outer), max(recorded.size - 1, 0))
        return np.where((outer >= 0) & (self.rows[place] == outer), place, NOTHING)

    def named(self, calls: Frame, pattern: re.Pattern[str]) -> Mask:
        """Which of these calls have such a name?"""
        found: Mask = (self.rows != UNKNOWN) & calls.name.matches(pattern)[self.rows]
        return found


def host_calls(place: Place, period: Period) -> HostCalls:
    """The calls of the driving threads in this period; none if none of its launches was recorded."""
    if not period.launch_begin_ns and not period.closed:
        none, nowhere = np.empty(0, np.int64), np.empty(0, dtype=bool)
        return HostCalls(none, none, none, none, nowhere, nowhere, 0, none, none)
    calls = place.timeline.calls
    threads = launching_threads(place.timeline, place.rank)
    nested = nested_rows(place.timeline, place.rank, "calls")
    of_threads = np.flatnonzero(np.isin(nested.rows["thread"], threads))
    own, outer = nested.numbers[of_threads], nested.numbers[nested.outermost[of_threads]]
    rows = own[outer == own]
    begin, end = (_call_begun(calls, own, outer, at) for at in (period.launch_begin_ns, period.launch_end_ns))
    rows = rows[(calls.start_ns[rows] >= begin) & (calls.start_ns[rows] < end)]
    to_free, free_ns = waits_to_free(place.work, calls, rows)
    waits = np.isin(rows, np.union1d(blocking_rows(place.host, place.work), to_free))
    for_room: Mask = np.isin(rows, full_queue_launches(place.work, calls)) & ~waits
    ends = calls.end_ns[rows]
    ends[np.searchsorted(rows, to_free)] = free_ns
    thread = calls["thread"][rows]
    ends = _until_the_next(calls.start_ns[rows], ends, thread)
    found = HostCalls(rows, calls.start_ns[rows], ends, thread, waits | for_room, for_room, end, own, outer)
    return _closed(found, period) if period.closed and rows.size else found


def _until_the_next(start_ns: Ints, end_ns: Ints, thread: Ints) -> Ints:
    """The ends of calls, at the latest when the next one of their thread begins: in a damaged recording they overlap.

    What would come behind a call that has not ended could not be simulated.
    """
    previous = _previous_of_thread(thread)
    later = np.flatnonzero(previous != NOTHING)
    ends: Ints = end_ns.copy()
    ends[previous[later]] = np.minimum(ends[previous[later]], start_ns[later])
    return ends


def _closed(host: HostCalls, period: Period) -> HostCalls:
    """The calls with the wait that ends the period added: from the end of host work, on the thread that called last."""
    last = int(np.argmax(host.end_ns))
    begin = max(int(host.end_ns[last]), period.launch_end_ns)
    end = max(begin, period.end_ns)

    def and_then(column: npt.NDArray[_Kind], value: int) -> npt.NDArray[_Kind]:
        return np.append(column, column.dtype.type(value))

    return replace(
        host,
        rows=and_then(host.rows, UNKNOWN),
        start_ns=and_then(host.start_ns, begin),
        end_ns=and_then(host.end_ns, end),
        thread=and_then(host.thread, int(host.thread[last])),
        waits=and_then(host.waits, True),
        for_room=and_then(host.for_room, False),
        again_ns=int(host.start_ns[0]) - period.begin_ns + end,
    )


def _call_begun(calls: Frame, rows: Ints, outer: Ints, moment: int) -> int:
    """The start of the outermost call of which a part began at this moment; the moment itself where none did."""
    return int(calls.start_ns[outer[calls.start_ns[rows] == moment]].min(initial=moment))


def predecessors(host: HostCalls) -> Ints:
    """For each call the one it follows, NOTHING for the first of all.

    It follows the last one of its thread, or, after a pause, the last call of the other thread that woke it.
    """
    previous = _previous_of_thread(host.thread)
    latest = last_ended(host, host.start_ns)
    # In a recording of whole µs calls may take none, and end as they or the next ones begin.
    latest = np.where(latest >= np.arange(len(host)), previous, latest)
    previous_end, latest_end = (
        np.where(each >= 0, host.end_ns[np.maximum(each, 0)], _NEVER) for each in (previous, latest)
    )
    paused = (previous < 0) | (host.start_ns - previous_end > _WOKEN_NS)
    woken = (latest >= 0) & (latest_end > previous_end) & paused
    return np.where(woken, latest, previous)


def last_ended(host: HostCalls, moments: Ints) -> Ints:
    """The call, of any thread, that ended last before each moment; NOTHING where none had."""
    by_end = np.argsort(host.end_ns, kind="stable")
    place = np.searchsorted(host.end_ns[by_end], moments, side="right") - 1
    return np.where(place >= 0, by_end[np.maximum(place, 0)], NOTHING)


def _previous_of_thread(thread: Ints) -> Ints:
    """For each call the one before it on its thread, NOTHING for the first."""
    previous = np.full(thread.size, NOTHING, np.int64)
    order = np.argsort(thread, kind="stable")
    same = thread[order][1:] == thread[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return previous
