"""What did ops, ranges, own functions and calls cost the host, and how long did the device work on what they launched?

Ops and calls count if they begin while the host launches the window's work (`host_window`), with all of their time;
ranges and functions count with the time that lies there. Of the device's work for them, what lies inside the window
counts, on all devices of the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.metrics import grouping
from perfdoctor.metrics.accounting.driving_threads import below_step
from perfdoctor.metrics.counters.kinds import of_names
from perfdoctor.metrics.counters.rates import RATES
from perfdoctor.metrics.host.own_code import own_function, own_functions
from perfdoctor.metrics.host.sync_sources import syncs
from perfdoctor.model.host_rows import Nested, nested, nested_rows
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import Launches, launches
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.steps import host_marks
from perfdoctor.model.timeline import UNKNOWN, Floats, Ints
from perfdoctor.vocabulary.names.base_names import without_numbers

#: These may run for the whole recording: of them counts what lies in the window. What counters saw of their kernels is
#: that of all inside them; of ops and calls it is that of their own.
_LONG = ("functions", "ranges")
#: How many numbers `_measured` gives before those of the counters.
_NUMBERS = 6


class HostCosts(Struct, frozen=True):
    """One element a group of like rows; all but `count` are of a step of an average rank.

    `keys`: the texts that its rows have in common. `host_ns`: of rows that lie in one of the same group only the outer
    counts. `own_host_ns`: without the rows inside. `device_ns`: kernels, collectives and copies asked for inside it;
    `own_device_ns`: inside it and no row below. NaN where no device was recorded. `idle_ns`: how long the device stood
    still after its blocking calls. `counted`: by each of RATES, what the GPU's counters measured of the names of its
    kernels, each by its time; NaN where unknown. Of functions and ranges of all kernels inside them, else of their own.
    """

    keys: tuple[tuple[str, ...], ...]
    count: Ints
    count_per_step: Floats
    host_ns: Floats
    own_host_ns: Floats
    device_ns: Floats
    own_device_ns: Floats
    idle_ns: Floats
    counted: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.keys)


class _Rank(Struct, frozen=True):
    """One rank's devices, when its host asked for their windows, and what it asked for."""

    places: tuple[Place, ...]
    window: Intervals
    launched: tuple[Launches, ...]
    device_ns: Ints
    counted: Mapping[str, Floats]

    @property
    def units(self) -> int:
        return self.places[0].units


def op_costs(run: Run) -> HostCosts | None:
    """Costs of ops by name, input shapes and types; None where no op was recorded."""
    keys = ("name", "input_shapes", "input_types")
    return _costs(run, "ops", keys, lambda rank: nested_rows(run.timeline, rank, "ops"))


def line_costs(run: Run) -> HostCosts | None:
    """Costs by function of the user's own code, with the line on which it begins; None without recorded stacks."""
    return _costs(run, "functions", ("name",), lambda rank: own_functions(run.timeline, rank))


def range_costs(run: Run) -> HostCosts | None:
    """Costs of ranges by name, without the steps' own marks; None where no range was recorded.

    In a name # stands for a number that hardly ever comes again (`op_id = 17`).
    """
    change = _without_running_numbers(run)

    def rows(rank: int) -> Nested:
        kept = below_step(run.timeline.ranges.of(rank=rank), host_marks(run.timeline, rank))
        return nested(kept.with_columns(name=kept.name.mapped(change)))

    return _costs(run, "ranges", ("name",), rows)


def _without_running_numbers(run: Run) -> Callable[[str], str]:
    """A function that puts # for the numbers of names that come less than once a step and differ by them alone."""
    names, steps = run.timeline.ranges.name, sum(rank.units for rank in _ranks(run))
    often = np.bincount(names.codes, minlength=len(names.values)).tolist()
    seldom = [name for name, times in zip(names.values, often, strict=True) if times < max(steps, 2)]
    stems = {name: without_numbers(name) for name in seldom}
    alike = Counter(stems.values())
    return lambda name: stems[name] if alike[stems.get(name, "")] > 1 else name


def call_costs(run: Run) -> HostCosts | None:
    """Costs of calls of the CUDA or HIP runtime and driver by name; None where no call was recorded."""
    return _costs(run, "calls", ("name",), lambda rank: nested_rows(run.timeline, rank, "calls"))


def _costs(run: Run, signal: str, keys: tuple[str, ...], rows_of: Callable[[int], Nested]) -> HostCosts | None:
    """Costs of the rows that `rows_of` gives for each rank, by their texts in the columns `keys`."""
    if not len(run.timeline[signal]):
        return None
    ranks = list(_ranks(run))
    parts = [(rank, rows_of(rank.places[0].rank)) for rank in ranks]
    if not any(len(rows.rows) for _, rows in parts):
        return None
    codes = [np.concatenate([rows.rows.text(key).codes for _, rows in parts]) for key in keys]
    group, first = grouping.combined(*codes)
    named = [code[first] for code in codes]
    edges = np.cumsum([0, *(len(rows.rows) for _, rows in parts)])
    measured = [
        _measured(rank, rows, group[begin:end], named[0].size, signal)
        for (rank, rows), begin, end in zip(parts, edges[:-1], edges[1:], strict=True)
    ]
    count = np.sum([each[0] for each in measured], axis=0)
    per_step = [
        np.mean([each[column] / rank.units for each, rank in zip(measured, ranks, strict=True)], axis=0)
        for column in range(len(measured[0]))
    ]
    of_counters = {
        name: grouping.ratio(per_step[_NUMBERS + 2 * place], per_step[_NUMBERS + 2 * place + 1])
        for place, name in enumerate(RATES)
    }
    used = np.flatnonzero((count > 0) | (np.nan_to_num(per_step[3]) > 0))
    calls, host_ns, own_host_ns, device_ns, own_device_ns, idle_ns = (each[used] for each in per_step[:_NUMBERS])
    values = [parts[0][1].rows.text(key).values for key in keys]
    return HostCosts(
        tuple(tuple(texts[int(code[at])] for texts, code in zip(values, named, strict=True)) for at in used.tolist()),
        count[used].astype(np.int64),
        calls,
        host_ns,
        own_host_ns,
        device_ns,
        own_device_ns,
        idle_ns,
        {name: shares[used] for name, shares in of_counters.items()},
    )


def _ranks(run: Run) -> Iterator[_Rank]:
    for number in dict.fromkeys(place.rank for place in run.places):
        places = tuple(place for place in run.places if place.rank == number)
        on_device = [place for place in places if place.device is not None]
        inside = [place.window.overlap_ns(place.work.start_ns, place.work.end_ns) for place in on_device]
        launched = tuple(launches(place) for place in on_device)
        counted = {
            name: np.concatenate([np.empty(0), *(rates_of_work(each, name) for each in on_device)]) for name in RATES
        }
        yield _Rank(places, host_window(places[0]), launched, np.concatenate([np.empty(0, np.int64), *inside]), counted)


def rates_of_work(place: Place, column: str) -> Floats:
    """One of RATES for each work of the device, by its kernel's name; NaN for copies and where it is unknown."""
    found = np.full(len(place.work), np.nan)
    for signal in ("kernels", "collectives"):
        found[place.work.rows[signal]] = of_names(place, place.recorded(signal).name, column)
    return found


def _measured(rank: _Rank, rows: Nested, group: Ints, groups: int, signal: str) -> tuple[Floats, ...]:
    """Count, host_ns, own_host_ns, device_ns, own_device_ns and idle_ns of all steps, by group; and two for each of
    RATES: the sum of rate × ns of its own kernels whose rate is known, and of their ns.
    """
    frame = rows.rows
    duration, begun = frame.duration_ns, rank.window.overlap_ns(frame.start_ns, frame.start_ns + 1) > 0
    here = begun
    if signal in _LONG:
        duration = rank.window.overlap_ns(frame.start_ns, frame.end_ns)
        here = duration > 0
    alone = -1 - np.arange(len(frame))  # what began before the window holds no time of those inside it back
    outer = ~rows.again(np.where(here, group, alone))
    missing = np.full(groups, np.nan)
    device, own_device, idle = missing, missing, missing
    counted = [np.zeros(groups)] * 2 * len(RATES)
    if any(place.device is not None for place in rank.places):
        row = np.concatenate([_around(each, rows, signal) for each in rank.launched])
        known = row != UNKNOWN
        own = grouping.sums(row[known], rank.device_ns[known], len(frame))
        own_device = grouping.sums(group, own, groups)
        outermost = ~rows.again(group)
        device = grouping.sums(group[outermost], _with_inner(rows, own)[outermost], groups)
        counted = list(_counted(rank, rows, group, row, groups, signal in _LONG))
        idle = _idle(rank, rows, group, groups) if signal == "functions" else missing
    count = grouping.sums(group, begun, groups)
    return (
        np.where(count > 0, count, grouping.sums(group, here, groups)),
        grouping.sums(group, np.where(here & outer, duration, 0), groups),
        grouping.sums(group, np.where(here, rows.own(duration), 0), groups),
        device,
        own_device,
        idle,
        *counted,
    )


def _counted(rank: _Rank, rows: Nested, group: Ints, row: Ints, groups: int, with_inner: bool) -> Iterator[Floats]:
    """For each of RATES the sum of rate × ns and that of ns, by the group of each work's `row`, or of all around."""
    outermost = ~rows.again(group) if with_inner else np.ones(group.size, dtype=bool)
    for rates in rank.counted.values():
        known = (row != UNKNOWN) & ~np.isnan(rates)
        for amounts in (rates * rank.device_ns, rank.device_ns):
            own = grouping.sums(row[known], amounts[known], group.size)
            each = _with_inner(rows, own) if with_inner and known.any() else own
            yield grouping.sums(group[outermost], each[outermost], groups)


def _around(launched: Launches, rows: Nested, signal: str) -> Ints:
    """For each work of a device the row inside which it was asked for, UNKNOWN for none."""
    if signal == "functions":
        return own_function(launched)
    if signal == "calls":
        return np.where(launched.known, np.searchsorted(rows.numbers, launched.call), UNKNOWN)
    return launched.inside(rows)


def _with_inner(rows: Nested, own: Floats) -> Floats:
    """The quantity of each row together with that of all rows inside it."""
    total: Floats = own.copy()
    at, around = np.arange(own.size), rows.parent
    while at.size:
        inner = around != UNKNOWN
        at, around = at[inner], around[inner]
        total = total + grouping.sums(around, own[at], own.size)
        around = rows.parent[around]
    return total


def _idle(rank: _Rank, rows: Nested, group: Ints, groups: int) -> Floats:
    """Idle ns after blocking calls, by the group of the innermost row around the call."""
    idle: Floats = np.zeros(groups)
    for place in rank.places:
        found = syncs(place)
        line = rows.innermost(found.calls.start_ns, found.calls["process"], found.calls["thread"])
        known = line != UNKNOWN
        idle = idle + grouping.sums(group[line[known]], found.idle_ns[known], groups)
    return idle


def host_window(place: Place) -> Intervals:
    """When the host launched the work of this place's window: it may be several steps ahead of the device.

    From the launch of the first work in the window to the launch of the first work behind it, on the stream that has
    most work (batches are copied ahead on another one); the window itself where launches were not recorded. Of steps
    that are held to the host's bounds (`Steps.on_host`), these.
    """
    if place.asked is not None:
        return place.asked
    if place.steps.used and place.steps.host_bounds is not None:
        return Intervals.single(*place.steps.host_bounds[[0, -1]].tolist())
    if place.device is None or not place.window or not len(place.work):
        return place.window
    work, launched = place.work, launches(place)
    streams, counts = np.unique(work.stream, return_counts=True)
    main = np.flatnonzero(launched.known & (work.stream == streams[counts.argmax()]))
    edges = place.steps.even_bounds[[0, -1]] if place.steps.used else (place.window.starts[0], place.window.ends[-1])
    first, behind = np.searchsorted(work.start_ns[main], edges).tolist()
    if first >= behind:
        return place.window
    at_ns, call = launched.at_ns[main], launched.call[main]
    end = at_ns[behind] if behind < main.size else place.timeline.calls.end_ns[call[first:]].max()
    return Intervals.single(int(at_ns[first]), int(end)) or place.window
