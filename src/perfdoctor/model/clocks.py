"""Do the clocks of host and device agree, and by how much is the device's off where they do not?

A tool reads two clocks and converts the one to the other. torch.profiler's kernels stand up to 0.1 ms before the calls
that launched them on some machines, and where they do, no kernel has a cause any more. What must hold shows how far the
device's clock is off:

```
host      │ launch │                       │ synchronize            │
device        ├──┤ never before its launch            never after ├──┤ the wait for it is over
              latency: some µs where the device was idle        way back: some µs
```

Where the device was idle, its next work starts when its launch arrives: of such work the time since the launch is the
latency, and its change over the recording is the drift of one clock against the other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.model.columns import UNKNOWN, Floats, Ints, occurring
from perfdoctor.model.device_work import DeviceWork, device_work
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.vocabulary.names import cuda as cuda_names

#: What is recorded by the device's clock.
_BY_DEVICE = ("kernels", "collectives", "copies", "stream_waits")
#: Work behind so long a pause of the whole device waited for nothing that runs there: kernels of a full queue are up to
#: 5 µs apart under CUPTI.
_PAUSE_NS = 10_000
#: The latency from the begin of a launching call to its work on an idle device. Of 75 recordings of 20 kinds of GPUs
#: whose clocks agree it is 3 to 18 µs (lower quartile of each); what lies outside of this range is a clock that is off.
_LATENCY_NS = (2_000, 20_000)
#: So far single times of host and device may contradict each other where their clocks agree.
CLOCK_SLACK_NS = 20_000
_USUAL_LATENCY_NS = 8_000
#: From the end of the last work to the return of the call that waits for it: 1.4 to 20 µs there.
_USUAL_RETURN_NS = 5_000
#: Work that starts later behind its launch than this waited for something else, on an idle device as well. And waits
#: that return so long before or behind the end of all work waited for other work.
_MOST_NS = 200_000
#: More work before its launch than this share shows clocks that cannot be brought together. So many ranks are named.
_MOST_LEFT, _NAMED = 0.05, 4
#: From here on an offset is said in ms.
_MANY_US = 10_000
#: More work than this share may not be moved before its launch.
_MOST_WRONG = 0.001
#: So many launches on a stream may not have begun: exactly that in recordings of V100, A100, H100 and H200.
QUEUE_LENGTH = 1_022
#: Of fewer pieces of work each may have had another reason.
_FEWEST = 3
#: So many stretches of the recording, of so many pieces each, show a drift; and a drift is corrected where it makes
#: this much in all.
_STRETCHES, _LEAST_DRIFT_NS = 8, 15_000
#: Two estimates of one slope differ by no more than this share of it.
_AGREEING = 0.3


class ClockOffset(Struct, frozen=True):
    """How far a device's clock is behind the host's: `at_begin_ns` at `begin_ns`, and so much more each ns from then.

    Less than 0: it is ahead. `early`: of the `launched` pieces of work whose launch is known, how many stand before it;
    `left`: how many still do, by more than clocks that agree differ. `is_shown`: does anything contradict the clock as
    it was recorded? Else the latency of launches is unusual, and no wait for the device says that it is real.
    """

    rank: int
    device: int
    at_begin_ns: int
    begin_ns: int
    drift: float = 0.0
    early: int = 0
    launched: int = 0
    left: int = 0
    is_shown: bool = True

    def __bool__(self) -> bool:
        """Is there anything to correct?"""
        return bool(self.at_begin_ns or self.drift)

    def corrected(self, times_ns: Ints) -> Ints:
        """Return these times of the device by the host's clock."""
        found: Ints = times_ns + self.at_begin_ns
        return found + np.rint((times_ns - self.begin_ns) * self.drift).astype(np.int64) if self.drift else found


def on_host_clock(timeline: Timeline) -> Timeline:
    """The recording with all work of its devices by the host's clock, and a note where that is not as recorded.

    It is the recording itself where clocks agree, or where nothing shows whether they do.
    """
    if not len(timeline.calls):
        return timeline
    found = [clock_offset(timeline, rank, device) for rank, device in timeline.places]
    offsets = [each for each in found if each]
    notes = (*timeline.notes, *(_notes(offsets) if offsets else ()), *_contradictions(found))
    if not offsets:
        return timeline if notes == timeline.notes else replace(timeline, notes=tuple(dict.fromkeys(notes)))
    frames = {signal: _corrected(timeline[signal], offsets) for signal in _BY_DEVICE}
    return replace(timeline, frames={**timeline.frames, **frames}, notes=tuple(dict.fromkeys(notes)))


def clock_offset(timeline: Timeline, rank: int, device: int) -> ClockOffset:
    """By how much the clock of one device is off; by nothing where it is not, or where nothing shows it."""
    work = device_work(timeline, rank, device)
    known = np.flatnonzero(work.launch != UNKNOWN)
    if not known.size:
        return ClockOffset(rank, device, 0, 0)
    since = work.start_ns[known] - timeline.calls.start_ns[work.launch[known]]
    begin_ns, is_shown = int(work.start_ns[0]), True
    prompt = _behind_pause(work)[known] & (since < _MOST_NS)
    at, latency = work.start_ns[known][prompt], since[prompt].astype(np.float64)
    drift = _drift(at, latency)
    usual, longer = (
        np.quantile(latency - drift * (at - begin_ns), (0.25, 0.75)).tolist() if latency.size else (0.0, 0.0)
    )
    if latency.size >= _FEWEST and longer - usual < _MOST_NS:
        off_ns = 0 if _LATENCY_NS[0] <= usual <= _LATENCY_NS[1] else round(_USUAL_LATENCY_NS - usual)
        # A clock that is late would have work end behind the waits for it: else launches do take so long there.
        if off_ns < 0:
            returned = _earliest_return(timeline, rank, work)
            off_ns, is_shown = off_ns if returned is None or returned < 0 else 0, returned is not None
    else:
        off_ns, drift = _by_bounds(timeline, rank, work, since), 0.0
    found = ClockOffset(rank, device, off_ns, begin_ns, -drift, int((since < 0).sum()), int(known.size))
    late = found.corrected(work.start_ns[known]) - (work.start_ns[known] - since)
    return replace(found, left=int((late < -CLOCK_SLACK_NS).sum()), is_shown=is_shown)


def _behind_pause(work: DeviceWork) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """One bool a row of work: had the whole device paused before it?"""
    before = np.maximum.accumulate(work.end_ns)[:-1]
    paused = np.zeros(len(work), dtype=bool)
    paused[1:] = work.start_ns[1:] - before > _PAUSE_NS
    return paused


def _drift(at_ns: Ints, latency_ns: Floats) -> float:
    """By how much the latency grows each ns; 0 where it does not steadily, or too little to matter.

    Of a line through the usual latencies of some stretches: one that single odd stretches do not move (Theil-Sen), with
    which the one of least squares must agree.
    """
    if at_ns.size < _STRETCHES * _FEWEST:
        return 0.0
    pieces = np.array_split(np.arange(at_ns.size), _STRETCHES)
    middle = np.array([np.mean(at_ns[piece]) for piece in pieces]) - at_ns[0]
    usual = np.array([np.quantile(latency_ns[piece], 0.25) for piece in pieces])
    first, second = np.triu_indices(_STRETCHES, k=1)
    apart = middle[second] - middle[first]
    if not apart.all():  # many pieces of one moment
        return 0.0
    slope = float(np.median((usual[second] - usual[first]) / apart))
    change = abs(slope) * (middle[-1] - middle[0])
    rest = usual - slope * middle
    scatter = float(np.median(np.abs(rest - np.median(rest))))
    agree = abs(float(np.polyfit(middle, usual, 1)[0]) - slope) <= _AGREEING * abs(slope)
    return slope if agree and change >= max(_LEAST_DRIFT_NS, 4 * scatter) else 0.0


def _by_bounds(timeline: Timeline, rank: int, work: DeviceWork, since: Ints) -> int:
    """What moves the device's work behind its launches and before the returns of the waits for it; 0 if it is there.

    For a queue that is always full: no work shows the latency, but none may contradict the calls.
    """
    least = np.sort(since)[:_FEWEST]
    earliest = int(least[-1] if least.size == _FEWEST else least[0])
    if -_MOST_NS < earliest < 0:
        return _USUAL_LATENCY_NS - earliest
    too_late = _beyond_queue(timeline.calls, work)
    if too_late < 0 and np.mean(since + too_late < 0) <= _MOST_WRONG:
        return too_late
    returned = _earliest_return(timeline, rank, work)
    # Only so far that no work comes before its launch.
    return 0 if returned is None or returned >= 0 else max(returned - _USUAL_RETURN_NS, -max(earliest, 0))


def _beyond_queue(calls: Frame, work: DeviceWork) -> int:
    """What moves the device's work until no stream has more of it launched, and not begun, than CUDA's queue holds.

    0 where none has: a launch returns when there is room for it.
    """
    plain = calls.name.matches(cuda_names.PLAIN_LAUNCH)
    known = np.flatnonzero(work.launch != UNKNOWN)
    known = known[plain[work.launch[known]]]
    latest = 0
    for stream in occurring(work.stream[known]):
        rows = known[work.stream[known] == stream]
        if rows.size > QUEUE_LENGTH:
            returned = np.sort(calls.end_ns[work.launch[rows]])[QUEUE_LENGTH:]
            latest = min(latest, int((returned - np.sort(work.start_ns[rows])[:-QUEUE_LENGTH]).min()))
    return latest


def _earliest_return(timeline: Timeline, rank: int, work: DeviceWork) -> int | None:
    """Ns from the end of all work to the earliest return of a call that waits for the whole device, or for its copy.

    Less than 0: it returns before the work is done. None where no such call was recorded.
    """
    calls = timeline.calls
    copies = np.flatnonzero(work.is_blocking_copy & (work.launch != UNKNOWN))
    back = calls.end_ns[work.launch[copies]] - work.end_ns[copies]
    waits = np.flatnonzero((calls["rank"] == rank) & calls.name.matches(cuda_names.WAITS_FOR_DEVICE))
    launched = np.where(work.launch != UNKNOWN, calls.start_ns[np.maximum(work.launch, 0)], work.start_ns)
    order = np.argsort(launched, kind="stable")
    reach = np.maximum.accumulate(work.end_ns[order])
    last = np.searchsorted(launched[order], calls.start_ns[waits]) - 1
    waits, last = waits[last >= 0], last[last >= 0]
    waited = reach[last] > calls.start_ns[waits]
    back = np.concatenate((back, (calls.end_ns[waits] - reach[last])[waited]))
    back = back[np.abs(back) < _MOST_NS]
    return int(back.min()) if back.size else None


def _contradictions(offsets: list[ClockOffset]) -> Iterator[str]:
    """A note on ranks whose clocks nothing brings together."""
    of = [each for each in offsets if each.left > _MOST_LEFT * each.launched]
    if not of:
        return
    ranks = sorted({each.rank for each in of})
    named = ", ".join(map(str, ranks[:_NAMED])) + (f" and {len(ranks) - _NAMED:,} more" if len(ranks) > _NAMED else "")
    left, launched = sum(each.left for each in of), sum(each.launched for each in of)
    yield (
        f"On rank{'s' * (len(ranks) > 1)} {named} {left:,} of {launched:,} pieces of work stand before the calls that "
        "launched them, and no shift of the GPU's clock explains it: causes of idle time and predicted savings are "
        "uncertain there."
    )


def _corrected(rows: Frame, offsets: list[ClockOffset]) -> Frame:
    if not len(rows):
        return rows
    start, end = rows.start_ns.copy(), rows.end_ns.copy()
    for each in offsets:
        own = (rows["rank"] == each.rank) & (rows["device"] == each.device)
        start[own], end[own] = each.corrected(start[own]), each.corrected(end[own])
    return rows.with_columns(start_ns=start, end_ns=np.maximum(start, end)).sorted()


def _notes(offsets: list[ClockOffset]) -> Iterator[str]:
    ranks = sorted({each.rank for each in offsets})
    whose, were, seem, their = f"The GPUs' clocks of {len(ranks):,} ranks", "were", "seem", "their"
    if len(ranks) == 1:
        whose, were, seem, their = f"The GPU's clock of rank {ranks[0]}", "was", "seems", "its"
    off_us = max(abs(each.at_begin_ns) for each in offsets) / 1e3
    off = "up to " * (len(offsets) > 1) + (f"{off_us:.0f} µs" if off_us < _MANY_US else f"{off_us / 1e3:.0f} ms")
    drift_ppm = max(abs(each.drift) for each in offsets) * 1e6
    early, launched = sum(each.early for each in offsets), sum(each.launched for each in offsets)
    is_shown = any(each.is_shown for each in offsets)
    why = " (on an idle GPU work began so much later behind its launch than usual)" if not is_shown else ""
    if early:
        why = f" ({early:,} of {launched:,} pieces of work stood before the calls that launched them)"
    yield (
        f"{whose} {were if is_shown else f'{seem} to be'} {off} off the host's"
        f"{f', and drifted by {drift_ppm:.0f} ppm' if drift_ppm else ''}{why}: "
        f"{their} work was moved to the host's clock."
    )
