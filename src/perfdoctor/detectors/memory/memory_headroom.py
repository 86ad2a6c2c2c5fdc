"""The host is too slow for the device, and there is memory for a larger batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.memory.growth import reserved_peaks
from perfdoctor.metrics.units import mib, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.replay.what_if.sizes import throughput


def _idle_ns(place: Place) -> int:
    return place.idle_ns("launch_bound")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Of the fullest device. A step gets no shorter by a larger batch, it gets more done: the saving is 0, and what is
    predicted is the throughput of the batch that fits.

    The slowest host sets the pace of a job. The devices of faster ones wait in collectives, where they are not idle:
    the rank that is launch-bound most shows what launches cost them all.
    """
    known = [reserve for reserve in reserved_peaks(run.timeline) if reserve.capacity_bytes]
    if not known or not run.places:
        return
    slowest = run.worst(_idle_ns)
    share = slowest.share(_idle_ns(slowest))
    if share < at["min_launch_bound_share"]:
        return
    fullest = max(known, key=lambda reserve: reserve.peak_bytes / reserve.capacity_bytes)
    free = 1 - fullest.peak_bytes / fullest.capacity_bytes
    if free < at["min_free_share"]:
        return
    gain = throughput(run, at["batch_factor"])
    yield Finding(
        rule="memory-headroom",
        saving_ns_per_step=NO_SAVING,
        confidence="medium",
        values={
            "reserved_mib": mib(fullest.peak_bytes),
            "capacity_mib": mib(fullest.capacity_bytes),
            "free_percent": percent(free),
            "idle_percent": percent(share),
            "more_samples_percent": _more_percent(gain, 1),
            "least_percent": _more_percent(gain, 0),
            "most_percent": _more_percent(gain, 2),
        },
        evidence=(
            Measure(f"most that was reserved on rank {fullest.rank}", fullest.peak_bytes, "bytes"),
            Measure("memory of the GPU", fullest.capacity_bytes, "bytes"),
            Measure("idle because the host launches too slowly", slowest.per_step(_idle_ns(slowest)), "ns"),
            *([Measure("more samples a second with twice the batch", gain[1] - 1, "share")] if gain else []),
        ),
    )


def _more_percent(gain: tuple[float, float, float] | None, case: int) -> float:
    """How many more samples a second; 0 where that cannot be simulated."""
    return percent(gain[case] - 1) if gain else 0.0
