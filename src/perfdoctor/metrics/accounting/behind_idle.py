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
from perfdoctor.model.timeline import Frame, Ints, Text
from perfdoctor.records.findings import Rows

_HOST = ("rank", "process", "thread", "start_ns", "end_ns", "name")


class Culprit(Struct, frozen=True):
    """What ran innermost on the host during idle time: its name, how often, for how much of it, and how long it ran."""

    name: str
    count: int
    idle_ns: int
    total_ns: int


@once_per_place
def host_rows(place: Place, signals: tuple[str, ...]) -> Frame:
    """What the threads that drive this place did: several signals as one frame, without the steps' own marks."""
    return _joined(place, {signal: place.timeline[signal].of(rank=place.rank) for signal in signals})


def host_rows_within(place: Place, signals: tuple[str, ...], begin_ns: int, end_ns: int) -> Frame:
    """The rows of `host_rows` that overlap `[begin_ns, end_ns)`: of a long recording only these are copied."""
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
    """What ran innermost on the host (`rows`) during `pieces`, by name, the largest share first."""
    own = own_ns(rows, pieces)
    hit = np.flatnonzero(own)
    return _by_name(rows.name, hit, own[hit], rows.duration_ns[hit])


def _by_name(names: Text, rows: Ints, idle_ns: Ints, total_ns: Ints) -> list[Culprit]:
    """The culprits among these rows, largest idle first; `idle_ns` and `total_ns` have one number a row."""
    found = [
        Culprit(name, count, round(idle), round(total))
        for name, count, idle, total in names.take(rows).sums(idle_ns, total_ns)
        if idle
    ]
    return sorted(found, key=lambda each: (-each.idle_ns, each.name))


def innermost_with_most(pieces: Intervals, rows: Frame, least_share: float) -> tuple[str, int]:
    """The innermost name whose rows cover at least `least_share` of `pieces`, and the ns covered; ("", 0) if none does.

    A row inside another covers less: of all names that cover enough, the one that covers least is the innermost.
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
    idle_ns = pieces.durations_ns[follows]
    return _by_name(rows.name, at[follows], idle_ns, np.zeros_like(idle_ns))


def table(label: str, place: Place, found: Sequence[Culprit]) -> Rows:
    """The first five as a table, idle time per step."""
    return Rows(
        label,
        ("name", "times", "idle a step", "ran, all together"),
        ("text", "count", "ns", "ns"),
        tuple((each.name, each.count, place.per_step(each.idle_ns), each.total_ns) for each in found[:5]),
    )


def each_step_ns(place: Place, pieces: Intervals) -> Nanoseconds:
    """How much of `pieces` lies in each step used, in ns; without steps the window counts as one."""
    bounds = place.steps.used_bounds
    if not place.steps.used:
        bounds = np.array([place.window.starts[0], place.window.ends[-1]], dtype=np.int64)
    return pieces.overlap_ns(bounds[:-1], bounds[1:])
