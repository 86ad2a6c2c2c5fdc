"""Which part of a recording is analysed: some of its steps, or the executions of one user range?

The device's time of an execution runs from the first to the last work that was launched in it (found by correlation, as
steps are), and over the idle at either edge while the host was still in the range:

```
host      │range ······ launch launch ···········│
device    ███████│······│████ ██████│············│█████      ··· counts, and so does what lies between
```
Of an execution that launched nothing it is what the device is idle meanwhile. On a run without a GPU it is the training
thread's own time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from perfdoctor.errors import UsageError
from perfdoctor.metrics.accounting.driving_threads import driving_threads
from perfdoctor.metrics.accounting.host_place import narrowed_to
from perfdoctor.model.host_rows import by_thread, outermost
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launches
from perfdoctor.model.place import Place
from perfdoctor.model.run import Selection
from perfdoctor.model.steps import Steps, warm_up
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Timeline
from perfdoctor.vocabulary.names.base_names import without_numbers

#: An error names so many ranges that are there.
_MOST_NAMES = 8
_LONGEST_NAME = 60
_NEVER = np.iinfo(np.int64).max


def narrowed(places: Sequence[Place], timeline: Timeline, selection: Selection) -> tuple[Place, ...]:
    """The places with that part as their window; places that have none of it are left out.

    Raises UsageError where the recording does not have it; `do` names what there is.
    """
    if selection.steps is not None:
        places = _with_steps(places, selection.steps)
    if not selection.range_name or not places:
        return tuple(places)
    names = range_names(timeline, selection.range_name)
    found = [_of_range(place, names) for place in places]
    if not any(found):
        raise UsageError(
            f"--range {_shown(selection.range_name)}: it took no time of a device in what was analysed",
            do="Name another range"
            + (", or leave --steps out." if selection.steps else ": the device was busy meanwhile."),
        )
    return tuple(place for place in found if place is not None)


# --- steps -----------------------------------------------------------------------------------------------------------


def _with_steps(places: Sequence[Place], steps: tuple[int, int]) -> list[Place]:
    """The places in these steps of their steady state, of which the first is 1. Raises UsageError where some lack."""
    first, last = steps
    asked = f"--steps {first}..{last}"
    used = min((place.steps.used for place in places), default=0)
    if not used:
        raise UsageError(
            f"{asked}: no steps were found in this recording",
            do="Mark them with torch.profiler's step() or an NVTX range per iteration, and record again.",
        )
    if last > used:
        raise UsageError(
            f"{asked}: there {'are' if used != 1 else 'is'} {used} step{'s' * (used != 1)} in steady state",
            do=f"Choose among 1..{used}: the first of them is 1.",
        )
    return [in_steps(place, first - 1, last) for place in places]


def in_steps(place: Place, first: int, last: int) -> Place:
    """The place with its steady steps `[first, last)` as its window; the first of all is 0."""
    steady = place.steps
    begin, end = steady.first + first, steady.first + last
    window = Intervals.single(int(steady.bounds[begin]), int(steady.bounds[end]))
    return narrowed_to(place, window, replace(steady, first=begin, last=end, steady=(steady.first, steady.last)))


# --- a range ---------------------------------------------------------------------------------------------------------


def range_names(timeline: Timeline, asked: str) -> frozenset[str]:
    """The recorded names that the user means: exactly this one; else those that contain it, upper or lower case.

    Names that differ in numbers alone (`step 1`, `step 2`) are one range. Raises UsageError where none fits, or
    several do.
    """
    ranges = timeline.ranges
    every = {ranges.name.values[code] for code in np.unique(ranges.name.codes).tolist()}
    if asked in every:
        return frozenset((asked,))
    found = frozenset(name for name in every if asked.casefold() in name.casefold() or without_numbers(name) == asked)
    if len(different(found)) == 1:
        return found
    what = f"--range {_shown(asked)}: "
    if found:
        raise UsageError(
            what + f"{len(different(found))} ranges fit", do=f"Name one: {_listed(_by_time(ranges, found))}."
        )
    if not every:
        raise UsageError(
            what + "no ranges were recorded",
            do="Mark it with torch.profiler.record_function(NAME) or NVTX, and record again.",
        )
    raise UsageError(
        what + "no such range was recorded", do=f"Recorded, longest first: {_listed(_by_time(ranges, every))}."
    )


def different(names: Iterable[str]) -> set[str]:
    """The names; of those that differ in a running number alone, only the first."""
    return {_shown(without_numbers(name)) for name in names}


def _by_time(ranges: Frame, names: Iterable[str]) -> list[str]:
    """Names as a line of text can show them, those of the longest ranges first."""
    codes, values = ranges.name.codes, ranges.name.values
    total: Counter[str] = Counter()
    wanted = set(names)
    for name, ns in zip(values, np.bincount(codes, weights=ranges.duration_ns, minlength=len(values)), strict=True):
        if name in wanted:
            total[_shown(without_numbers(name))] += int(ns)
    return sorted(total, key=lambda name: (-total[name], name))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f", and {more} more" if more > 0 else "")


def _shown(name: str) -> str:
    """A name as a line of text may hold it."""
    plain = "".join(char if char.isprintable() else "�" for char in name)
    return plain if len(plain) <= _LONGEST_NAME else plain[: _LONGEST_NAME - 1] + "…"


def _of_range(place: Place, names: frozenset[str]) -> Place | None:
    """The place with the executions of a range as its steps; None where they take no time of it."""
    of_rank = place.timeline.ranges.of(rank=place.rank)
    rows = outermost(of_rank.take(of_rank.name.equals(*names)))
    if not len(rows):
        return None
    execution = None if place.device is None else _launching(place, rows)
    rows, execution = _steady(place, rows, execution)
    window, begin = (rows.intervals, rows.start_ns) if execution is None else _on_device(place, rows, execution)
    if not window:
        return None
    # Work of the next execution may begin on another stream before the last of this one has ended: there it is cut.
    bounds = np.append(np.unique(begin), window.ends[-1])
    length = window.overlap_ns(bounds[:-1], bounds[1:])
    bounds, length = bounds[np.append(length > 0, True)], length[length > 0]
    first = 0 if place.steps.used else warm_up(length)
    bounds, length = bounds[first:], length[first:]
    steps = Steps("user-range", "high", bounds, 0, length.size, 0, lengths_ns=length, steady=place.steps.steady)
    kept = Intervals.single(int(bounds[0]), int(bounds[-1]))
    return narrowed_to(place, window & kept, steps, rows.intervals)


def _steady(place: Place, rows: Frame, execution: Ints | None) -> tuple[Frame, Ints | None]:
    """The executions that begin in the place's window; all of them where none does and no steps were chosen.

    `execution`: for each row of work the one that launched it. One begins with its first work, or on the host.
    """
    begin = rows.start_ns.copy()
    if execution is not None:
        launched = execution != UNKNOWN
        first = np.full(len(rows), _NEVER)
        np.minimum.at(first, execution[launched], place.work.start_ns[launched])
        begin = np.where(first == _NEVER, begin, first)
    inside = (begin >= place.window.starts[0]) & (begin < place.window.ends[-1])
    if not inside.any() and place.steps.steady is None:
        inside[:] = True
    if execution is None:
        return rows.take(inside), None
    number = np.where(inside, np.cumsum(inside) - 1, UNKNOWN)
    return rows.take(inside), np.where(execution == UNKNOWN, UNKNOWN, number[execution])


def _on_device(place: Place, rows: Frame, execution: Ints) -> tuple[Intervals, Ints]:
    """The device's time of all executions, and where that of each begins."""
    work, launched = place.work, np.flatnonzero(execution != UNKNOWN)
    first, last = np.full(len(rows), _NEVER), np.full(len(rows), -_NEVER)
    np.minimum.at(first, execution[launched], work.start_ns[launched])
    np.maximum.at(last, execution[launched], work.end_ns[launched])
    busy = Intervals.of(work.start_ns, work.end_ns)
    has = first != _NEVER
    begin = np.maximum(busy.free_since(first[has]), np.minimum(rows.start_ns[has], first[has]))
    end = np.minimum(_idle_until(busy, last[has]), np.maximum(rows.end_ns[has], last[has]))
    with_work = Intervals.of(begin, end)
    without = Intervals.of(rows.start_ns[~has], rows.end_ns[~has]) - busy - with_work
    return with_work | without, np.concatenate((begin, _first_in(without, rows.take(~has))))


def _first_in(pieces: Intervals, rows: Frame) -> Ints:
    """The first moment of the pieces in each row, of those that hold one."""
    if not pieces:
        return np.empty(0, np.int64)
    following = np.searchsorted(pieces.ends, rows.start_ns, side="right")
    starts = np.append(pieces.starts, _NEVER)[following]
    begin: Ints = np.maximum(starts, rows.start_ns)
    return begin[begin < rows.end_ns]


def _launching(place: Place, rows: Frame) -> Ints:
    """For each row of work the execution that launched it, UNKNOWN for none.

    A backward pass launches from autograd's own threads: where the range's thread drives the device, others that do
    count as well. But a batch that one of them copies meanwhile is the loader's.
    """
    launched = launches(place)
    execution = np.full(len(place.work), UNKNOWN, np.int64)
    drivers = driving_threads(place.timeline, place.rank)
    helps = np.isin(launched.thread, drivers) & ~place.work.is_h2d
    for (process, thread), own in by_thread(rows):
        row = own[np.maximum(np.searchsorted(rows.start_ns[own], launched.at_ns, side="right") - 1, 0)]
        inside = launched.known & (launched.at_ns >= rows.start_ns[row]) & (launched.at_ns < rows.end_ns[row])
        on_thread = (launched.process == process) & (launched.thread == thread)
        inside &= on_thread | (helps & (thread in drivers))
        execution[inside] = row[inside]
    return execution


def _idle_until(busy: Intervals, at: Ints) -> Ints:
    """For each moment at which work ends, the begin of what runs behind it: the moment itself if the device is busy."""
    behind = np.searchsorted(busy.ends, at, side="right")
    starts = np.where(behind < len(busy), busy.starts[np.minimum(behind, len(busy) - 1)], _NEVER)
    return np.maximum(starts, at)
