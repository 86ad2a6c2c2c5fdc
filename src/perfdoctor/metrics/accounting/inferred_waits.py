"""When did the host wait for the device without a call that says so?

It polls an event or a flag, asks a stream again and again, or stands in the caching allocator, which waits for a
collective before it gives memory back. In such a stretch the host launches nothing and calls nothing else, the device
works at what was launched before, and the host goes on just after that is done:

```
host      │ launch launch │ ····· nothing, or queries ····· │ launch
device       ██████████████████████████████████████████████ ·
                                            end of the work ├─┤ the host goes on
```

A host that does something of its own meanwhile goes on at any moment: that it would be so soon behind the end of work
has a probability which is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from perfdoctor.metrics.accounting.driving_threads import driving_rows, host_activity
from perfdoctor.model.columns import UNKNOWN, Ints, Mask, Text
from perfdoctor.model.device_work import DeviceWork, device_work
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.steps import host_marks
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.vocabulary.names import cuda as cuda_names

#: Shorter stretches without a call are Python between two launches, under a profiler with stacks as well.
_LEAST_NS = 500_000
#: So improbable must it be that the host goes on so soon behind the end of work by chance.
_MOST_BY_CHANCE = 0.05
#: The device works for at least this share of the time until its work is done, and the host does nothing else that is
#: known: it waited for the device.
_LEAST_BUSY = 0.9
#: A thread that is woken, or sees at its next look that work is done, makes its next call 20 to 80 µs behind it
#: (H100 and V100, with torch.profiler). One that sleeps between two questions comes later.
_LONGEST_WAKE_UP_NS = 150_000
#: An op that comes so often between two calls is a question that is asked again.
_AGAIN = 50
#: Nobody goes on before what he waits for, but for a µs or two by which the clocks differ.
_BEFORE_NS = 2_000


class _Quiet(Struct, frozen=True):
    """Stretches in which the driving threads called nothing, one element each.

    `thread`, `process`: who goes on then. `asks`: was it asked meanwhile whether work is done, or what a flag is?
    """

    start_ns: Ints
    end_ns: Ints
    thread: Ints
    process: Ints
    asks: Mask


def with_inferred_waits(timeline: Timeline) -> Timeline:
    """The recording with a call for each wait of a host for its device that no recorded call shows."""
    found: dict[str, list[Any]] = {name: [] for name in ("rank", "process", "thread", "start_ns", "end_ns", "name")}
    for rank in timeline.ranks:
        devices = [device for of_rank, device in timeline.places if of_rank == rank]
        quiet = _quiet(timeline, rank) if devices and len(timeline.calls) else None
        if quiet is None or not quiet.start_ns.size:
            continue
        for device in devices:
            for name, column in _waits(device_work(timeline, rank, device), quiet, rank).items():
                found[name] += column
    count = len(found["rank"])
    if not count:
        return timeline
    columns: dict[str, Any] = {name: np.array(found[name], np.int64) for name in found if name != "name"}
    waits = Frame({**columns, "name": Text.of(found["name"]), "correlation": np.full(count, UNKNOWN, np.int64)})
    waits = Frame({name: waits.columns[name] for name in timeline.calls.columns})
    return timeline.with_frame("calls", Frame.join([timeline.calls, waits]))


def _waits(work: DeviceWork, quiet: _Quiet, rank: int) -> dict[str, list[Any]]:
    """The columns of the rows for the stretches in which a rank waited for this work of one of its devices."""
    if not (work.launch != UNKNOWN).any():
        return {}
    ends = np.sort(work.end_ns)
    behind = np.searchsorted(ends, quiet.end_ns + _BEFORE_NS, side="right")
    done = ends[np.maximum(behind - 1, 0)]
    busy = Intervals.of(work.start_ns, work.end_ns)
    # Nothing runs any more when the host goes on: it waited for all that was launched, which ends once.
    drained = busy.overlap_ns(done, np.maximum(quiet.end_ns, done + 1)) == 0
    candidates = np.where(drained, 1, behind - np.searchsorted(ends, quiet.start_ns))
    late_ns = np.maximum(quiet.end_ns - done, 0) + _BEFORE_NS
    length = quiet.end_ns - quiet.start_ns
    waited: Mask = (behind > 0) & (done > quiet.start_ns) & (candidates * late_ns <= _MOST_BY_CHANCE * length)
    waited &= quiet.asks | (late_ns <= _LONGEST_WAKE_UP_NS)
    until = np.maximum(done, quiet.start_ns + 1)
    waited &= busy.overlap_ns(quiet.start_ns, until) >= _LEAST_BUSY * (until - quiet.start_ns)
    name = np.where(drained, cuda_names.INFERRED_WAIT, cuda_names.INFERRED_WAIT_FOR_EVENT)
    return {
        "rank": [rank] * int(waited.sum()),
        "process": quiet.process[waited].tolist(),
        "thread": quiet.thread[waited].tolist(),
        "start_ns": quiet.start_ns[waited].tolist(),
        "end_ns": np.maximum(quiet.end_ns, done)[waited].tolist(),
        "name": name[waited].tolist(),
    }


def _quiet(timeline: Timeline, rank: int) -> _Quiet:
    """The long stretches in which no thread that drives a device begins or ends anything, and is in no call."""
    calls, ops = (driving_rows(timeline, rank, signal) for signal in ("calls", "ops"))
    query = calls.name.matches(cuda_names.QUERY)
    queries, calls = calls.take(query).start_ns, calls.take(~query)
    asking = _asking(calls, ops)
    queries, ops = _merged(queries, ops.start_ns[asking]), ops.take(~asking)
    starts = _merged(calls.start_ns, ops.start_ns)
    moments = _merged(starts, np.sort(np.concatenate((calls.end_ns, ops.end_ns)), kind="stable"))
    at = np.flatnonzero(np.diff(moments) > _LEAST_NS)
    begin, end = moments[at], moments[at + 1]
    known = Intervals.union(_known(timeline, rank, calls))
    free: Mask = known.overlap_ns(begin, end) <= (1 - _LEAST_BUSY) * (end - begin)
    begin, end = begin[free], end[free]
    thread, process = _who(calls, ops, end)
    return _Quiet(begin, end, thread, process, np.searchsorted(queries, begin) < np.searchsorted(queries, end))


def _asking(calls: Frame, ops: Frame) -> Mask:
    """One bool an op: is it one of very many that read the same, again and again, between two calls?

    A flag in memory that the device writes is asked for so (`while not flag.item()`).
    """
    asking = np.zeros(len(ops), dtype=bool)
    reach = np.maximum.accumulate(calls.end_ns)
    at = np.flatnonzero(calls.start_ns[1:] - reach[:-1] > _LEAST_NS)
    begin, end = reach[at], calls.start_ns[at + 1]
    many = np.searchsorted(ops.start_ns, end) - np.searchsorted(ops.start_ns, begin) >= _AGAIN
    begin, end = begin[many], end[many]
    if not begin.size:
        return asking
    stretch = np.searchsorted(begin, ops.start_ns, side="right") - 1
    inside = np.flatnonzero((stretch >= 0) & (ops.start_ns < end[stretch]))
    # One number for each name in each stretch.
    kind = stretch[inside] * (int(ops.name.codes.max(initial=0)) + 1) + ops.name.codes[inside]
    _, of, often = np.unique(kind, return_inverse=True, return_counts=True)
    asking[inside] = often[of] >= _AGAIN
    return asking


def _known(timeline: Timeline, rank: int, calls: Frame) -> Iterator[Intervals]:
    """When it is known what the host does, or waits for: it is in a call, or a cause has been named."""
    host = host_activity(timeline, rank)
    yield calls.take(calls.duration_ns > _LEAST_NS).intervals
    yield from host.explicit.values()
    yield host.once
    yield host.profiler
    if (marks := host_marks(timeline, rank)) is not None and marks.found_by == "user-range":
        yield host.between_steps


def _merged(one: Ints, other: Ints) -> Ints:
    """Two sorted rows of numbers as one: a stable sort knows how to join what is sorted already."""
    return np.sort(np.concatenate((one, other)), kind="stable")


def _who(calls: Frame, ops: Frame, moments: Ints) -> tuple[Ints, Ints]:
    """Thread and process of what begins, or else ends, at each moment."""
    found: list[npt.NDArray[np.int64]] = []
    for column in ("thread", "process"):
        values = np.concatenate([rows[column] for rows in (calls, ops, calls, ops)])
        edges = np.concatenate((calls.start_ns, ops.start_ns, calls.end_ns, ops.end_ns))
        order = np.argsort(edges, kind="stable")
        found.append(values[order[np.searchsorted(edges[order], moments)]] if moments.size else np.empty(0, np.int64))
    return found[0], found[1]
