"""What did work wait for that had been launched, and did not start? Its stream, an event, and the host meanwhile.

Which stream waits for an event is recorded by some tools, and on which stream that event was by few. Else a wait is
taken to hold up the next work that its thread launches:

```
host      launch A │ StreamWaitEvent │ launch B │ hipMemcpyWithStream ···············│
stream 2           ?················ (not recorded) ···············│ the event
stream 3                                        ░░░░░░░░░ B waits ░░░▓▓▓ B
```
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.behind_idle import host_rows
from perfdoctor.metrics.accounting.driving_threads import launching_threads
from perfdoctor.metrics.host.own_code import own_functions
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.device_work import launch_rows
from perfdoctor.model.host_rows import nested
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Ints
from perfdoctor.vocabulary.names import cuda as cuda_names


class QueueWaits(Struct, frozen=True):
    """Idle of unknown cause in which launched work did not start, one element a stretch.

    `work` is the row of DeviceWork that waited, `event_wait` the row of `timeline.calls` of the wait for an event in
    front of its launch, UNKNOWN for none; `awaited_stream` is that on which the event was recorded, UNKNOWN where that
    is not known; `inferred`: no tool recorded which stream waits. `meanwhile`: the row of the call that the host was in
    for most of it.
    """

    pieces: Intervals
    work: Ints
    event_wait: Ints
    awaited_stream: Ints
    meanwhile: Ints
    inferred: bool


class _Waits(Struct, frozen=True):
    """Waits of streams for events: the rows of their calls, and the stream, or else the thread, that each is `of`.

    `work_of`: the same of each row of DeviceWork. `awaited`: by row of `timeline.calls`.
    """

    call: Ints
    of: Ints
    work_of: Ints
    awaited: Ints


class Stood(Struct, frozen=True):
    """The call that the host stood in: its name, how long it took in all, and the op and the own line around it."""

    call: str
    ns: int
    op: str
    line: str


def _ended_by(place: Place) -> tuple[Ints, Ints]:
    """For each stretch of idle the row of the work behind it, and of the call that launched that; UNKNOWN for none."""
    work = place.work
    row = np.searchsorted(work.start_ns, place.idle.ends)
    launch = np.append(work.launch, UNKNOWN)[row]
    return row, launch


def unlaunched(place: Place) -> Intervals:
    """The place's unknown idle that ended with work whose launching call was not recorded."""
    row, launch = _ended_by(place)
    unknown = (launch == UNKNOWN) & (row < len(place.work))
    return place.idle_causes["unknown"] & Intervals.of(place.idle.starts[unknown], place.idle.ends[unknown])


@once_per_place
def queue_waits(place: Place) -> QueueWaits:
    """The place's unknown idle behind the launch of the work that ended it."""
    calls, idle = place.timeline.calls, place.idle
    row, launch = _ended_by(place)
    known = launch != UNKNOWN
    launched = calls.start_ns[launch[known]] if len(calls) else launch[known]
    behind = Intervals.of(np.maximum(idle.starts[known], launched), idle.ends[known])
    pieces = place.idle_causes["unknown"] & behind
    waiting = row[known][np.searchsorted(idle.ends[known], pieces.ends)] if pieces else np.empty(0, np.int64)
    waits = _recorded_waits(place)
    event = _in_front(place, waits or _waits_by_order(place))[waiting]
    awaited = np.append(waits.awaited if waits else [UNKNOWN] * len(calls), UNKNOWN)[event]
    return QueueWaits(pieces, waiting, event, awaited, _meanwhile(place, pieces), inferred=waits is None)


def _recorded_waits(place: Place) -> _Waits | None:
    """The waits for events that a tool recorded, by stream; None where none did."""
    calls, waits = place.timeline.calls, place.timeline["stream_waits"].of(rank=place.rank, device=place.device or 0)
    if "stream_waits" not in place.timeline.recorded:
        return None
    call = launch_rows(waits, calls)
    waits, call = waits.take(call != UNKNOWN), call[call != UNKNOWN]
    awaited = np.full(len(calls), UNKNOWN, np.int64)
    awaited[call] = waits["awaited_stream"]
    return _Waits(call, waits["stream"], place.work.stream, awaited)


def _waits_by_order(place: Place) -> _Waits:
    """The calls that make a stream wait for an event, by the thread that made them."""
    calls, launch = place.timeline.calls, place.work.launch
    call = np.flatnonzero(calls.name.matches(cuda_names.STREAM_WAIT) & (calls["rank"] == place.rank))
    thread = np.append(calls["thread"], UNKNOWN)
    return _Waits(call, thread[call], thread[launch], np.full(len(calls), UNKNOWN, np.int64))


def _in_front(place: Place, waits: _Waits) -> Ints:
    """For each row of work the last wait that came between its launch and the one before, of its stream or thread.

    Work behind it on its stream waits as well, until that first one starts.
    """
    launch, found = place.work.launch, np.full(len(place.work), UNKNOWN)
    for key in np.unique(waits.of).tolist():
        rows = np.flatnonzero((waits.work_of == key) & (launch != UNKNOWN))
        launching, own = np.unique(launch[rows]), np.sort(waits.call[waits.of == key])
        following = np.searchsorted(launching, own, side="right")
        in_front = np.full(launching.size, UNKNOWN)
        in_front[following[following < launching.size]] = own[following < launching.size]
        found[rows] = in_front[np.searchsorted(launching, launch[rows])]
    return found


def by_stream(place: Place) -> list[tuple[int, str, str, int, int, int]]:
    """(stream, wait in front, call of the host meanwhile, how often, all ns, longest ns), the longest sum first."""
    waits, calls = queue_waits(place), place.timeline.calls
    found: dict[tuple[int, str, str], list[int]] = {}

    def name(row: int) -> str:
        return calls.name[row] if row != UNKNOWN else ""

    for number, ns in enumerate(waits.pieces.durations_ns.tolist()):
        stream = int(place.work.stream[waits.work[number]])
        key = (stream, name(int(waits.event_wait[number])), name(int(waits.meanwhile[number])))
        found.setdefault(key, []).append(ns)
    rows = [(*key, len(each), sum(each), max(each)) for key, each in found.items()]
    return sorted(rows, key=lambda row: -row[4])


def _meanwhile(place: Place, pieces: Intervals) -> Ints:
    """For each piece the driving threads' call that takes at least half of it, UNKNOWN where there is none."""
    calls, drivers = place.timeline.calls, launching_threads(place.timeline, place.rank)
    own = np.flatnonzero((calls["rank"] == place.rank) & np.isin(calls["thread"], drivers))
    starts, ends = calls.start_ns[own], calls.end_ns[own]
    found = np.full(len(pieces), UNKNOWN)
    firsts = np.searchsorted(np.maximum.accumulate(ends), pieces.starts, side="right").tolist()
    lasts = np.searchsorted(starts, pieces.ends).tolist()
    for number, ((begin, end), first, last) in enumerate(zip(pieces, firsts, lasts, strict=True)):
        inside = np.minimum(ends[first:last], end) - np.maximum(starts[first:last], begin)
        if inside.size and 2 * inside.max() >= end - begin:
            found[number] = own[first + inside.argmax()]
    return found


def stood(place: Place, call: int) -> Stood:
    """What is known of the call in this row of `timeline.calls`."""
    calls = place.timeline.calls.take(np.array([call]))
    ops, lines = nested(host_rows(place, ("ops",))), own_functions(place.timeline, place.rank)
    at = calls.start_ns, calls["process"], calls["thread"]
    op, line = ops.innermost(*at), lines.innermost(*at)
    return Stood(
        calls.name[0],
        int(calls.duration_ns[0]),
        ops.rows.name[int(op[0])] if op[0] >= 0 else "",
        lines.rows.name[int(line[0])] if line[0] >= 0 else "",
    )
