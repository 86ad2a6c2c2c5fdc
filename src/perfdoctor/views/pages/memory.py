"""The page `memory`: how much memory was allocated over time, for what, by which lines, and does it grow?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from perfdoctor.metrics.memory.in_use import SnapshotReplay, replays
from perfdoctor.metrics.memory.step_samples import samples
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Ints, Text, Timeline
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.memory import MemoryUse
from perfdoctor.records.views import Axis, Chart, Series, Table, TableColumn, Unit
from perfdoctor.views.lines import extreme_rows, lines, thinned
from perfdoctor.vocabulary import places
from perfdoctor.vocabulary.kinds import MEMORY_KINDS, memory_label
from perfdoctor.vocabulary.parts import REST

#: Charts of devices, highest peak first: the devices of a large job are similar.
MOST_DEVICES = 4
#: Kinds of memory with a colour of their own; the others are shown as one.
_MOST_KINDS = 5
_OTHERS = "all others"
#: Points of a stack of areas: each level takes two points, and each area has two edges.
_MOST_LEVELS = 200
#: Below this share of the device's memory its limit is only mentioned: drawn, it would flatten the rest.
_NEAR_THE_LIMIT = 0.25
#: As in findings.
_NO_STACK = "no stack"
#: The place of what was allocated before the first event.
_BEFORE = -1
_BYTES = Axis("bytes", "bytes")
_BY_CHANGE = Axis("events of the snapshot, in order", "position")


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table | Chart]:
    uses = sorted(diagnosis.memory, key=lambda use: (-use.peak_bytes, use.rank, use.device))
    for use, name in list(zip(uses, _names(uses), strict=True))[:MOST_DEVICES]:
        yield from _over_time(run, use, name)
    yield from _at_the_ends_of_steps(run.timeline)
    if uses:
        yield from _holders(uses)
        yield _devices(uses, run.timeline)


def _names(uses: Sequence[MemoryUse]) -> list[str]:
    return places.place_names([(use.rank, use.device) for use in uses])


def _over_time(run: Run, use: MemoryUse, name: str) -> Iterator[Chart]:
    timeline = run.timeline
    if use.source == "snapshot":
        found = next((each for each in replays(timeline) if (each.rank, each.device) == (use.rank, use.device)), None)
        series, axis = (tuple(_of_replay(found)) if found else ()), _BY_CHANGE
    else:
        signal = "memory_changes" if use.source == "timeline" else "memory_totals"
        rows = timeline[signal].of(rank=use.rank, device=use.device)
        zero, end, label = _zero_and_end_ns(run, use.rank, rows)
        x, axis = (rows.start_ns - zero).astype(np.float64), Axis(label, "ns")
        if use.source == "timeline":
            series = tuple(_areas(x, rows["bytes"], rows.name, float(end - zero)))
        else:
            series = (Series("in use", "steps", *thinned(x, rows["allocated_bytes"])),)
            if (rows["reserved_bytes"] > 0).any():
                series += (Series("reserved", "steps", *thinned(x, rows["reserved_bytes"])),)
    if not any(each.x.size > 1 for each in series):
        return
    capacity = timeline.device_of(use.rank, use.device).memory_bytes
    drawn = (*series, *_limit(capacity, use, series))
    yield _chart(f"memory-{use.rank}-{use.device}", f"Memory of {name}", axis, drawn, use, capacity)


def _chart(id_: str, title: str, axis: Axis, series: tuple[Series, ...], use: MemoryUse, capacity: int) -> Chart:
    numbers: dict[str, tuple[float | str, Unit]] = {"peak": (use.peak_bytes, "bytes")}
    description = "Peak {peak} in use"
    if use.peak_reserved_bytes >= 0:
        numbers["reserved"] = use.peak_reserved_bytes, "bytes"
        description += ", {reserved} reserved at that moment"
    if capacity:
        numbers["capacity"] = capacity, "bytes"
        description += "; the GPU has {capacity}"
    if use.by_category:
        kind, held = next(iter(use.by_category.items()))
        numbers |= {"kind": (memory_label(kind), "text"), "share": (held / max(use.peak_bytes, 1), "share")}
        description += ". Largest part of the peak: {kind}, {share}"
    return Chart("memory", id_, title, f"{description}.", axis, _BYTES, series, numbers)


def _zero_and_end_ns(run: Run, rank: int, rows: Frame) -> tuple[int, int, str]:
    """Start and end of the window on this rank, or of the events if there is none; and the label of the axis."""
    windows = [place.window for place in run.places if place.rank == rank]
    if windows:
        start = min(int(window.starts[0]) for window in windows)
        return start, max(int(window.ends[-1]) for window in windows), "time since the start of the window"
    return *((int(rows.start_ns[0]), int(rows.start_ns[-1])) if len(rows) else (0, 0)), "time since the first event"


def _limit(capacity: int, use: MemoryUse, series: Sequence[Series]) -> Iterator[Series]:
    most = max(use.peak_bytes, use.most_reserved_bytes)
    if capacity and most >= _NEAR_THE_LIMIT * capacity:
        ends = np.array([min(float(each.x.min()) for each in series), max(float(each.x.max()) for each in series)])
        yield Series("memory of the GPU", "guide", ends, np.full(2, float(capacity)))


def _of_replay(replay: SnapshotReplay) -> Iterator[Series]:
    """Memory in use, stacked by purpose, and reserved memory as a line."""
    allocations = replay.allocations
    made, freed, size = (allocations[column] for column in ("made_at", "freed_at", "bytes"))
    is_made, is_freed = made != UNKNOWN, freed != UNKNOWN
    kinds = allocations.text("category")
    codes = np.concatenate((np.arange(size.size), np.flatnonzero(is_freed)))
    at = np.concatenate((np.where(is_made, made, _BEFORE), freed[is_freed])).astype(np.float64)
    places, reserved = replay.reserved
    # Behind the last event, so that what it left is seen: where memory ran out, that is the peak.
    end = float(max(replay.active[0][-1], places[-1], replay.events["at"].max(initial=_BEFORE))) + 1
    yield from _areas(at, np.concatenate((size, -size[is_freed])), kinds.take(codes), end)
    x, y = np.append(places, end), np.append(reserved, reserved[-1])
    yield Series("reserved", "steps", *thinned(x, y))


def _areas(at: Floats, change: Ints, kinds: Text, end: float) -> Iterator[Series]:
    """Running sums by kind until `end`, the largest at the peak at the bottom; at the extreme moments of the total."""
    order = np.argsort(at, kind="stable")
    at, change, kinds = at[order], change[order], kinds.take(order)
    # Of changes at one moment only the state after the last one counts.
    last = np.flatnonzero(np.diff(at, append=np.inf) > 0)
    if not last.size:
        return
    total = change.cumsum()[last]
    rows = last[extreme_rows(total.astype(np.float64), _MOST_LEVELS)]
    peak = int(last[total.argmax()])
    sums = {name: np.where(kinds.equals(name), change, 0).cumsum() for name in dict.fromkeys(kinds)}
    ranked = sorted(sums, key=lambda name: (-int(sums[name][peak]), name))
    shown = {name: sums[name] for name in ranked[:_MOST_KINDS]}
    if ranked[_MOST_KINDS:]:
        shown[REST] = np.sum([sums[name] for name in ranked[_MOST_KINDS:]], axis=0)
    x = np.append(np.repeat(at[rows], 2)[1:], max(end, float(at[-1])))
    for name, sums_of in shown.items():
        if sums_of[rows].any():
            label = _OTHERS if name == REST else memory_label(name)
            part = name if name == REST or name in MEMORY_KINDS else ""
            yield Series(label, "area", x, np.repeat(sums_of[rows], 2).astype(np.float64), part=part)


def _at_the_ends_of_steps(timeline: Timeline) -> Iterator[Chart]:
    """Memory allocated between steps: if it rises, something is kept from step to step."""
    frame = samples(timeline)
    for kind, whose in (("cuda", "GPU"), ("heap", "process")):
        rows = frame.take(frame.name.equals(kind))
        named = [(name, np.arange(1, len(own) + 1), own["allocated_bytes"]) for name, own in _by_process(rows)]
        named = [each for each in named if each[1].size > 1]
        if not named:
            continue
        rises = [float(held[-1] - held[0]) for _, _, held in named]
        most = int(np.argmax(rises))
        name, _, held = named[most]
        change = f"{'rises' if rises[most] > 0 else 'falls'} by {{change}}" if rises[most] else "stays the same"
        yield Chart(
            "memory", f"memory-steps-{kind}", f"Memory of the {whose} at the ends of steps",
            f"{{name}} {change} over {{steps}} steps, from {{first}} to {{last}}.",
            Axis("step", "position"), _BYTES, tuple(lines(named, "steps")),
            {"name": (name, "text"), "change": (abs(rises[most]), "bytes"), "steps": (len(held), "count"),
             "first": (int(held[0]), "bytes"), "last": (int(held[-1]), "bytes")},
        )  # fmt: skip


def _by_process(rows: Frame) -> Iterator[tuple[str, Frame]]:
    keys = sorted(set(zip(*(rows[column].tolist() for column in ("rank", "process", "device")), strict=True)))
    names = places.place_names([(rank, device) for rank, _, device in keys])
    for name, (rank, process, device) in zip(names, keys, strict=True):
        own = rows.of(rank=rank, process=process, device=device)
        yield (name if names.count(name) == 1 else f"{name}, process {process}"), own


def _devices(uses: Sequence[MemoryUse], timeline: Timeline) -> Table:
    capacities = [timeline.device_of(use.rank, use.device).memory_bytes or UNKNOWN for use in uses]
    columns: list[tuple[str, Unit, Sequence[int], str]] = [
        ("peak in use", "bytes", [use.peak_bytes for use in uses], "Allocated, or freed and used by another stream."),
        ("reserved at the peak", "bytes", [use.peak_reserved_bytes for use in uses], "From the driver."),
        ("free at the peak", "bytes", [use.free_bytes for use in uses], "Of the reserved memory."),
        ("free blocks", "count", [use.free_pieces for use in uses], ""),
        ("largest free block", "bytes", [use.largest_free_bytes for use in uses], ""),
        ("peak reserved", "bytes", [use.most_reserved_bytes for use in uses], ""),
        ("allocated at the end", "bytes", [use.allocated_bytes for use in uses], ""),
        ("reserved at the end", "bytes", [use.reserved_bytes for use in uses], ""),
        ("memory of the GPU", "bytes", capacities, ""),
        ("allocator events", "count", [use.events for use in uses], ""),
    ]
    known = [
        TableColumn(name, unit, [None if value == UNKNOWN else value for value in values], explained)
        for name, unit, values, explained in columns
        if any(value != UNKNOWN for value in values)
    ]
    first = TableColumn("device", "text", _names(uses))
    return Table("memory", "memory-devices", "Memory by device, highest peak first", (first, *known), len(uses))


def _holders(uses: Sequence[MemoryUse]) -> Iterator[Table]:
    """The largest allocations at the peak, by source line."""
    rows = [(name, use, holder) for use, name in zip(uses, _names(uses), strict=True) for holder in use.holders]
    if not rows:
        return
    yield Table(
        "memory", "memory-holders", "Largest allocations at the peak",
        (
            TableColumn("line and callers", "text", [each.stack or each.line or _NO_STACK for _, _, each in rows]),
            *([TableColumn("device", "text", [name for name, _, _ in rows])] if len(uses) > 1 else []),
            TableColumn("purpose", "text", [memory_label(holder.category) for _, _, holder in rows]),
            TableColumn("tensors", "count", [holder.count for _, _, holder in rows]),
            TableColumn("allocated", "bytes", [holder.bytes for _, _, holder in rows]),
            TableColumn("of the peak", "share", [holder.bytes / max(use.peak_bytes, 1) for _, use, holder in rows]),
        ),
        len(rows),
    )  # fmt: skip
