"""What did the GPUs do meanwhile: under load or not, how fast, throttled by what? And which rank's GPU is which?

A driver counts the GPUs of a machine, a rank those that it may see. The numbers are the same where every rank has one
of its own and no more GPUs are at work than the job has ranks; else the GPUs at work stand for the ranks where there
are as many of the one as of the other; else it is unknown (there may be another job), and samples are the machine's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.grouping import of_known
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Ints, Mask, Timeline
from perfdoctor.records.findings import Rows

#: NVML's reasons (nvml.h, nvmlClocksEventReason…) by what is to be done about them.
IDLE = 0x1
HELD_BY: Mapping[str, int] = {"heat": 0x20 | 0x40, "brake": 0x80, "hardware": 0x8, "power": 0x4, "clocks-set": 0x2}
#: HW slowdown is reported together with what caused it: alone it has a cause of its own.
_CAUSES_OF_SLOWDOWN = 0x40 | 0x80
#: Two samples further apart than this many usual distances have a hole between them.
_HOLE = 4
_MOST_ROWS = 16
#: A GPU is at work in samples in which a kernel ran for half of the time: an idle GPU is cool, and shows nothing.
AT_WORK = 0.5


class SampledGpu(Struct, frozen=True):
    """The samples of one GPU from one file, in order of their times."""

    device: int
    samples: Frame

    @property
    def file(self) -> str:
        """Which file it is in: another one may be of another machine."""
        return self.samples.name[0]

    @property
    def name(self) -> str:
        return next((name for name in self.samples.text("gpu") if name), "")

    def floats(self, column: str) -> Floats:
        return self.samples.floats(column)

    def under_load(self, least_share: float) -> Mask:
        """One bool a sample: was the GPU at work?

        By its utilisation; where that is unknown, by not being idle; in a mere list of processes, by having one.
        """
        used = self.floats("utilization_share")
        used = np.where(np.isnan(used), self.floats("sm_active_share"), used)
        reasons = self.samples["reasons"]
        otherwise = np.where(reasons == UNKNOWN, self.floats("processes") > 0, reasons & IDLE == 0)
        return np.where(np.isnan(used), otherwise, np.nan_to_num(used) >= least_share)

    def has(self, *columns: str) -> bool:
        """Is a number of one of these columns in any sample?"""
        return any(not np.isnan(self.floats(column)).all() for column in columns)

    def held_by(self, cause: str) -> Mask:
        """One bool a sample: were its clocks held down by this (a key of HELD_BY)?"""
        reasons = np.maximum(self.samples["reasons"], 0)
        held: Mask = reasons & HELD_BY[cause] != 0
        return held & (reasons & _CAUSES_OF_SLOWDOWN == 0) if cause == "hardware" else held

    def is_held(self) -> Mask:
        """One bool a sample: were its clocks held down by anything at all?"""
        every: Mask = np.any([self.held_by(cause) for cause in HELD_BY], axis=0)
        return every

    def spans(self) -> tuple[Ints, Ints]:
        """The begin of each sample and of the next one, in ns; no further apart than a few usual distances."""
        start = self.samples.start_ns
        if start.size < 2:
            return start, start
        usual = int(np.median(np.diff(start)))
        following = np.append(start[1:], start[-1] + usual)
        return start, np.minimum(following, start + _HOLE * usual)


def gpus(timeline: Timeline) -> list[SampledGpu]:
    """The GPUs that were sampled, each once a file."""
    frame = timeline["device_samples"]
    found = []
    for name in dict.fromkeys(frame.name):
        rows = frame.take(frame.name.equals(name))
        found += [SampledGpu(int(device), rows.of(device=int(device))) for device in np.unique(rows["device"])]
    return found


def of_places(run: Run, load_share: float, *columns: str) -> dict[tuple[int, int], SampledGpu]:
    """The samples of each place's GPU, by rank and device; empty where it is unknown whose they are.

    Of the first file that knows them. `columns`: only of files with numbers of one of these columns.
    """
    places = [place for place in run.places if place.device is not None]
    for name in dict.fromkeys(run.timeline["device_samples"].name):
        own = {gpu.device: gpu for gpu in gpus(run.timeline) if gpu.file == name}
        if columns and not any(gpu.has(*columns) for gpu in own.values()):
            continue
        loaded = [gpu for gpu in own.values() if gpu.under_load(load_share).any()]
        devices = [place.device or 0 for place in places]
        is_alone = len(loaded) <= max(run.timeline.world_size, len(places))
        if len(set(devices)) == len(devices) and set(devices) <= {gpu.device for gpu in loaded} and is_alone:
            return {place.rank_and_device: own[place.device or 0] for place in places}
        if len(loaded) == len(places):
            loaded.sort(key=lambda gpu: gpu.device)
            return {place.rank_and_device: gpu for place, gpu in zip(places, loaded, strict=True)}
    return {}


def free_clock_mhz(gpu: SampledGpu, others: list[SampledGpu], load_share: float, fewest: int) -> tuple[float, bool]:
    """The SM clock under load that nothing holds down, in MHz, and whether it was measured; NaN if unknown.

    Of the same GPU, else of others of the same file; else the highest that the GPU can have.
    """
    for each in (gpu, *others):
        clocks = each.floats("sm_clock_mhz")[each.under_load(load_share) & ~each.is_held()]
        clocks = clocks[~np.isnan(clocks)]
        if clocks.size >= fewest:
            return float(np.median(clocks)), True
    return of_known(np.nanmax, gpu.floats("max_sm_clock_mhz")), False


def lost_ns(place: Place, gpu: SampledGpu, held: Mask, work: Intervals, free_mhz: float) -> float:
    """How much longer `work` took inside the window because the clock was held down, in ns.

    Work that the SM clock limits takes `free / clock` times as long: of its time, `1 - clock / free` is lost. Where the
    samples are not on the recording's clock, their mean loss holds for all of it.
    """
    clocks = gpu.floats("sm_clock_mhz")
    loss = np.where(held & ~np.isnan(clocks), np.clip(1 - np.nan_to_num(clocks) / free_mhz, 0, 1), 0.0)
    begin, end = gpu.spans()
    inside = gpu.samples["is_on_clock"] & (begin < place.window.ends[-1]) & (end > place.window.starts[0])
    if inside.any():
        return float((work.overlap_ns(begin[inside], end[inside]) * loss[inside]).sum())
    return work.total_ns * float(loss.mean())


def sampled(run: Run) -> tuple[Rows, ...]:
    """What the GPUs were sampled at, as evidence for a rule about them; () where they were not."""
    rows = table(gpus(run.timeline), AT_WORK)
    return (rows,) if rows is not None else ()


def table(found: list[SampledGpu], load_share: float) -> Rows | None:
    """The medians of each GPU under load as a table; None where nothing is known."""
    shown = [gpu for gpu in found if gpu.has("power_w", "sm_clock_mhz", "temperature_c")]
    rows = []
    for gpu in shown:
        loaded = gpu.under_load(load_share)
        if loaded.any():
            columns = (gpu.floats(name)[loaded] for name in ("power_w", "sm_clock_mhz", "temperature_c"))
            power, clock, heat = map(_median, columns)
            rows.append((gpu.device, int(loaded.sum()), power, clock, heat))
    if not rows:
        return None
    return Rows(
        "The GPUs under load, as they were sampled",
        ("GPU", "samples", "power (W)", "SM clock (MHz)", "temperature (°C)"),
        ("count", "count", "text", "text", "text"),
        tuple(rows[:_MOST_ROWS]),
    )


def _median(values: Floats) -> str:
    known = values[~np.isnan(values)]
    return f"{np.median(known):.0f}" if known.size else "unknown"
