"""What did the host do during the idle time of one cause: which op, range, function or call, and in which steps?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.driving_threads import below_step, driving_threads
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import own_ns
from perfdoctor.model.intervals import Intervals, Nanoseconds
from perfdoctor.model.place import Place
from perfdoctor.model.steps import host_marks
from perfdoctor.model.timeline import Frame
from perfdoctor.records.findings import Rows

_HOST = ("rank", "process", "thread", "start_ns", "end_ns", "name")


class Culprit(Struct, frozen=True):
    """One name: how often it was the innermost during that idle, how much of the idle that is, how long it ran."""

    name: str
    count: int
    idle_ns: int
    total_ns: int


@once_per_place
def host_rows(place: Place, signals: tuple[str, ...]) -> Frame:
    """What the threads that drive this place did, several signals as one frame; not the steps' own marks."""
    return _joined(place, {signal: place.timeline[signal].of(rank=place.rank) for signal in signals})


def host_rows_within(place: Place, signals: tuple[str, ...], begin_ns: int, end_ns: int) -> Frame:
    """Those of `host_rows` that overlap this time: of a long recording a small part, and only that is copied."""
    frames = {signal: place.timeline[signal].of(rank=place.rank) for signal in signals}
    near = {signal: (rows.start_ns < end_ns) & (rows.end_ns > begin_ns) for signal, rows in frames.items()}
    return _joined(place, {signal: rows.take(near[signal]) for signal, rows in frames.items()})


def _joined(place: Place, of_signals: Mapping[str, Frame]) -> Frame:
    marks = host_marks(place.timeline, place.rank)
    threads = driving_threads(place.timeline, place.rank)
    frames = []
    for signal, rows in of_signals.items():
        own = rows.take(np.isin(rows["thread"], threads))
        if signal in ("ranges", "functions"):
            own = below_step(own, marks)
        frames.append(Frame({column: own.columns[column] for column in _HOST}))
    return Frame.join(frames)


def culprits(pieces: Intervals, rows: Frame) -> list[Culprit]:
    """What ran innermost on the host during `pieces`, by name, the largest share first."""
    own, values = own_ns(rows, pieces), rows.name.values
    hit = np.flatnonzero(own)
    codes = rows.name.codes[hit]
    idle = np.bincount(codes, weights=own[hit], minlength=len(values))
    count = np.bincount(codes, minlength=len(values))
    total = np.bincount(codes, weights=rows.duration_ns[hit], minlength=len(values))
    found = [
        Culprit(values[code], int(count[code]), round(idle[code]), round(total[code]))
        for code in np.flatnonzero(idle).tolist()
    ]
    return sorted(found, key=lambda each: (-each.idle_ns, each.name))


def innermost_with_most(pieces: Intervals, rows: Frame, least_share: float) -> tuple[str, int]:
    """The innermost name of which the rows hold at least this share of `pieces`, and how much; ("", 0) if none does.

    What is inside another holds less: of all that hold enough, the one that holds least.
    """
    inside, least_ns = pieces.overlap_ns(rows.start_ns, rows.end_ns), max(least_share * pieces.total_ns, 1.0)
    each = np.bincount(rows.name.codes, weights=inside, minlength=len(rows.name.values))
    found = []
    for code in np.flatnonzero(each >= least_ns).tolist():  # one inside itself counted twice
        own = rows.take(rows.name.codes == code)
        found.append(((pieces & own.intervals).total_ns, rows.name.values[code]))
    ns, name = min((each for each in found if each[0] >= least_ns), default=(0, ""))
    return name, ns


def launched_next(place: Place, pieces: Intervals) -> list[Culprit]:
    """The kernel that ended each of `pieces` (without a GPU the op), by name, the largest share first."""
    rows = place.kernels if place.device is not None else place.timeline.ops.of(rank=place.rank)
    at = np.searchsorted(rows.start_ns, pieces.ends, side="left")
    follows = at < len(rows)
    codes, values = rows.name.codes[at[follows]], rows.name.values
    idle = np.bincount(codes, weights=pieces.durations_ns[follows], minlength=len(values))
    count = np.bincount(codes, minlength=len(values))
    found = [Culprit(values[code], int(count[code]), round(idle[code]), 0) for code in np.flatnonzero(idle).tolist()]
    return sorted(found, key=lambda each: (-each.idle_ns, each.name))


def table(label: str, place: Place, found: Sequence[Culprit]) -> Rows:
    """The first five of them as a table, per step."""
    return Rows(
        label,
        ("name", "times", "idle a step", "ran, all together"),
        ("text", "count", "ns", "ns"),
        tuple((each.name, each.count, place.per_step(each.idle_ns), each.total_ns) for each in found[:5]),
    )


def each_step_ns(place: Place, pieces: Intervals) -> Nanoseconds:
    """How much of `pieces` lies in each step used, in ns; in the window where no steps were found."""
    bounds = place.steps.bounds[place.steps.first : place.steps.last + 1]
    if not place.steps.used:
        bounds = np.array([place.window.starts[0], place.window.ends[-1]], dtype=np.int64)
    return pieces.overlap_ns(bounds[:-1], bounds[1:])
