"""Which tracks come from the accounting and from samples: steps, idle by cause, memory, clocks and power?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.counters.samples import usable
from perfdoctor.metrics.machine.gpu_samples import AT_WORK, of_places
from perfdoctor.metrics.program import noun_of
from perfdoctor.model.columns import Ints, Text, constant
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats, Frame, Timeline
from perfdoctor.records.views import Unit
from perfdoctor.views.timeline.lanes import Drawn, DrawnWindow, Lane, split

_HERTZ_IN_MHZ = 1e6
#: (column, label, unit, factor from the recorded unit) of the samples of a GPU.
_SAMPLED: tuple[tuple[str, str, Unit, float], ...] = (
    ("sm_clock_mhz", "SM clock", "hertz", _HERTZ_IN_MHZ),
    ("power_w", "power", "watt", 1.0),
    ("temperature_c", "temperature", "celsius", 1.0),
    ("utilization_share", "utilization", "share", 1.0),
    ("memory_used_bytes", "memory used", "bytes", 1.0),
)
#: The tracks of the GPU's own counters: the title, and the columns that it is the sum of.
_COUNTED: Mapping[str, tuple[str, ...]] = {
    "SM active": ("sm_active_share",),
    "tensor cores active": ("tensor_active_share",),
    "DRAM read and written": ("dram_read_share", "dram_write_share"),
    "PCIe received": ("pcie_rx_share",),
    "PCIe sent": ("pcie_tx_share",),
    "NVLink received": ("nvlink_rx_requests_user_share", "nvlink_rx_responses_user_share"),
    "NVLink sent": ("nvlink_tx_requests_user_share", "nvlink_tx_responses_user_share"),
}


def step_lane(place: Place, window: DrawnWindow) -> Lane | None:
    """Track of the place's steps, or executions of a range; steady ones are numbered from 1 on, as in findings."""
    starts, ends = _edges(place)
    touch = np.flatnonzero((ends > window.start_ns) & (starts < window.end_ns) & (ends > starts))
    if not touch.size:
        return None
    steps = place.steps
    first, last = steps.steady if steps.steady and steps.lengths_ns is None else (steps.first, steps.last)
    what = noun_of(place)
    labels = [f"{what} {at - first + 1}" if first <= at < last else f"{what} left out" for at in touch.tolist()]
    start, duration = window.inside(starts[touch], ends[touch])
    return Lane("step", f"{what}s", Drawn(start, duration, Text.of(labels)), constant(0, touch.size))


def _edges(place: Place) -> tuple[Ints, Ints]:
    """Starts and ends of the steps. An execution of a range ends with the range, not where the next one starts."""
    starts, ends = place.steps.bounds[:-1], place.steps.bounds[1:]
    if place.steps.lengths_ns is None or not starts.size:
        return starts, ends
    last = np.maximum(np.searchsorted(place.window.starts, ends, side="left") - 1, 0)
    return starts, np.maximum(np.minimum(place.window.ends[last], ends), starts)


def idle_lane(place: Place, window: DrawnWindow) -> Lane | None:
    """Track of the place's idle time: a piece for each interval of one cause, named by the cause."""
    causes = {cause: pieces for cause, pieces in place.idle_causes.items() if pieces}
    if not causes:
        return None
    start, duration = window.inside(
        np.concatenate([pieces.starts for pieces in causes.values()]),
        np.concatenate([pieces.ends for pieces in causes.values()]),
    )
    codes = np.repeat(np.arange(len(causes), dtype=np.int32), [len(pieces) for pieces in causes.values()])
    at = np.argsort(start, kind="stable")
    names = Text(codes[at], list(causes))
    return Lane("idle", "idle by cause", Drawn(start[at], duration[at], names), constant(0, at.size))


def typical_step(run: Run, window: DrawnWindow) -> tuple[int, int]:
    """The step of median length among those used, on the place with the longest steps; the window without steps."""
    stepping = [place for place in run.places if place.steps.used]
    if not stepping:
        return 0, window.length_ns
    place = max(stepping, key=lambda each: each.window_ns / each.units)
    durations = place.steps.durations_ns
    number = place.steps.first + int(np.argmin(np.abs(durations - np.median(durations))))
    start, end = (int(edges[number]) for edges in _edges(place))
    return start - window.start_ns, end - window.start_ns


def memory_lanes(timeline: Timeline, window: DrawnWindow) -> Mapping[tuple[int, int], list[Lane]]:
    """Tracks of the memory of torch's allocator or of the process in the window, by rank and device; -1 is the host."""
    found: dict[tuple[int, int], list[Lane]] = {}
    for signal in ("memory_totals", "memory"):
        frame = timeline[signal]
        for (rank, device), rows in split(frame, np.arange(len(frame)), "rank", "device"):
            if (rank, device) not in found:  # totals have each change, samples only the ends of steps
                lanes = list(_held(frame, rows, window))
                if lanes:
                    found[rank, device] = lanes
    return found


def _held(frame: Frame, rows: Ints, window: DrawnWindow) -> Iterator[Lane]:
    for column, what in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved")):
        values = frame.floats(column)[rows]
        known = values >= 0
        yield from _counter(f"memory {what}", frame.start_ns[rows][known], values[known], "bytes", window)


def sampled_lanes(run: Run, window: DrawnWindow) -> Mapping[tuple[int, int], list[Lane]]:
    """What the GPU's own counters measured, then clocks, power and other samples of each place's GPU, if their rank and
    their time are known.
    """
    found = {place.rank_and_device: list(_counted(place, window)) for place in run.places if place.device is not None}
    for place, gpu in of_places(run, AT_WORK).items() if len(run.timeline["device_samples"]) else ():
        samples = gpu.samples.take(gpu.samples["is_on_clock"])
        found[place] += [
            lane
            for column, what, unit, factor in _SAMPLED
            for lane in _counter(what, samples.start_ns, samples.floats(column) * factor, unit, window)
        ]
    return found


def _counted(place: Place, window: DrawnWindow) -> Iterator[Lane]:
    """A track of each of _COUNTED that is not 0 all the time."""
    samples = usable(place)
    if samples is None:
        return
    for title, columns in _COUNTED.items():
        values = np.sum([samples.rows.floats(column) for column in columns], axis=0)
        if np.nan_to_num(values).any():
            yield from _counter(title, samples.starts, values, "share", window)


def _counter(title: str, at_ns: Ints, values: Floats, unit: Unit, window: DrawnWindow) -> Iterator[Lane]:
    """Track of the values, each of which holds until the next; the last one before the window holds at its start."""
    known = np.flatnonzero(~np.isnan(values))
    known = known[np.append(True, values[known[1:]] != values[known[:-1]])[: known.size]]
    at_ns, values = at_ns[known], values[known]
    until = np.append(at_ns[1:], window.end_ns)[: at_ns.size]
    holds = np.flatnonzero((until > window.start_ns) & (at_ns < window.end_ns) & (until > at_ns))
    if holds.size:
        start, duration = window.inside(at_ns[holds], until[holds])
        name = Text(np.broadcast_to(np.int32(0), holds.size), [title])
        yield Lane("counter", title, Drawn(start, duration, name), constant(0, holds.size), values[holds], unit)
