"""How do files recorded beside the timeline join it: samples of GPUs, topology, NCCL's log, measured links?

Such a file belongs to a machine or a job, and to no rank. Its times are put on the timeline's clock if it is known when
the recording's time 0 was. A time without a zone is put there only if a single zone makes samples and recording
overlap; otherwise the samples describe the run as a whole. Samples of another day, in
whatever zone, are of another run and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from perfdoctor.hardware.measured import MeasuredRates
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.readers import text_rows
from perfdoctor.readers.machine.sample_times import EPOCH_NS, SECOND_NS
from perfdoctor.readers.nccl import job as nccl_job
from perfdoctor.vocabulary.signals import MACHINE_SIGNALS

_HOUR_NS, _QUARTER_NS = 3600 * SECOND_NS, 900 * SECOND_NS
#: Time zones in use lie between -12 and +14 hours, nearly all of them whole hours, the others quarters.
_ZONES_NS = range(-14 * _HOUR_NS, 14 * _HOUR_NS + 1, _QUARTER_NS)
#: Signals whose times are put on the timeline's clock.
_DATED = ("device_samples", "cpu_samples")
_AS_A_WHOLE = "its samples describe the run as a whole."
#: Of measured links only NCCL's are those of a training's GPUs.
_BACKEND = "nccl"


def joined(timeline: Timeline, sides: Sequence[Timeline], extent_ns: tuple[int, int] | None = None) -> Timeline:
    """The timeline with all that was recorded beside it. `extent_ns`: of more ranks than are in it, if known."""
    extent_ns = extent_ns or extent(timeline)
    sides = nccl_job.of_one_job(sides)
    notes: list[str] = []
    frames = {signal: [timeline[signal]] for signal in MACHINE_SIGNALS}
    for side in sides:
        notes += side.notes
        for signal in MACHINE_SIGNALS:
            rows = side[signal]
            if signal in _DATED and len(rows):
                rows, note = _on_clock(rows, extent_ns, timeline.epoch_ns)
                notes += [note] if note else []
            frames[signal].append(rows)
    told_once = dict.fromkeys(notes)  # equal machines of a job have equal notes
    return timeline.beside(sides, {signal: Frame.join(parts) for signal, parts in frames.items()}, *told_once)


def with_rates(timeline: Timeline, measured: Sequence[MeasuredRates]) -> Timeline:
    """The timeline with the rates of measured machines, and their links as measured links."""
    rows = [row for rates in measured for row in _links(rates)]
    if rows:
        links = Frame.join([timeline["link_tests"], text_rows.frame("link_tests", rows)])
        timeline = timeline.with_frame("link_tests", links)
    return replace(timeline, measured=tuple(measured)) if measured else timeline


def _links(rates: MeasuredRates) -> Iterator[dict[str, object]]:
    """A row of `link_tests` for each size of an all-reduce that was measured over NCCL."""
    for each in rates.steady("all_reduce"):
        if each.backend == _BACKEND and each.ranks > 1:
            carried = 2 * (each.ranks - 1) / each.ranks * each.bytes
            yield {
                "name": "all_reduce", "source": "perfdoctor selftest", "gpu": rates.machine.device,
                "ranks": each.ranks, "machines": 1, "bytes": each.bytes, "time_ns": round(carried / each.median * 1e9),
                "bus_bytes_per_second": each.median,
            }  # fmt: skip


# --- clocks ----------------------------------------------------------------------------------------------------------


def _on_clock(samples: Frame, recorded_ns: tuple[int, int] | None, epoch_ns: int | None) -> tuple[Frame, str]:
    """The samples, on the timeline's clock where possible, and a note about that or ""."""
    if recorded_ns is None:  # there is no recording's clock: only the samples' order counts
        return samples, ""
    name = samples.name[0]
    zero_ns = epoch_ns if epoch_ns is not None else 0 if recorded_ns[0] >= EPOCH_NS else None
    if zero_ns is None or samples.start_ns[0] < EPOCH_NS:
        return _undated(samples), f"{name} cannot be put on the recording's clock: {_AS_A_WHOLE}"
    begin, end = recorded_ns[0] + zero_ns, recorded_ns[1] + zero_ns
    apart_ns = max(int(samples.start_ns[0]) - end, begin - int(samples.end_ns[-1]))
    if apart_ns >= _ZONES_NS.stop:
        return _none(
            samples
        ), f"{name} was sampled {apart_ns / _HOUR_NS:,.0f} hours from the recording: it is left out."
    if samples["is_on_clock"].all():
        if _meet(samples, begin, end, 0):
            return _shifted(samples, -zero_ns), ""
        return _undated(samples), f"{name} was sampled at another time than the recording: {_AS_A_WHOLE}"
    zones = [zone for zone in _ZONES_NS if _meet(samples, begin, end, -zone)]
    zones = zones if len(zones) == 1 else [zone for zone in zones if zone % _HOUR_NS == 0]
    if len(zones) != 1:
        why = "several time zones would fit" if zones else "it was sampled at another time"
        return _undated(samples), f"{name} has no time zone, and {why}: {_AS_A_WHOLE}"
    hours = zones[0] / _HOUR_NS
    return (
        _shifted(samples, -zones[0] - zero_ns),
        f"{name} has no time zone: read as UTC{hours:+g} h, the only zone in which it overlaps the recording.",
    )


def extent(timeline: Timeline) -> tuple[int, int] | None:
    """From the first row of what ran to the end of the last one, in ns; None without any."""
    return extent_of(timeline[s] for s in ("kernels", "collectives", "copies", "ops", "ranges", "calls"))


def extent_of(frames: Iterable[Frame]) -> tuple[int, int] | None:
    """From the first of these rows to the end of the last one, in ns; None without any."""
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return None
    return min(int(frame.start_ns[0]) for frame in filled), max(int(frame.end_ns.max()) for frame in filled)


def _meet(samples: Frame, begin: int, end: int, shift_ns: int) -> bool:
    """Do the samples, so many ns later, overlap the time from `begin` to `end`?"""
    return bool(samples.start_ns[0] + shift_ns < end and samples.end_ns[-1] + shift_ns > begin)


def _shifted(samples: Frame, shift_ns: int) -> Frame:
    return samples.shifted(shift_ns).with_columns(is_on_clock=np.ones(len(samples), dtype=bool))


def _undated(samples: Frame) -> Frame:
    """The samples from time 0 on, as they are of no known time."""
    return samples.shifted(-int(samples.start_ns[0])).with_columns(is_on_clock=np.zeros(len(samples), dtype=bool))


def _none(samples: Frame) -> Frame:
    """None of the samples."""
    return samples.take(np.zeros(len(samples), dtype=bool))
