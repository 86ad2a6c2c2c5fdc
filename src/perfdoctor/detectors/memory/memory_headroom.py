"""The host is too slow for the device, and there is memory for a larger batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.memory.growth import reserved_peaks
from perfdoctor.metrics.units import mib, percent
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.replay.what_if.sizes import throughput


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find free memory on the fullest device. A larger batch makes no step shorter: its throughput is predicted.

    The slowest host sets the pace of a job. The devices of faster ones wait in collectives, where they are not idle:
    the rank that is launch-bound most shows what launches cost them all.
    """
    known = [reserve for reserve in reserved_peaks(run.timeline) if reserve.capacity_bytes]
    if not known or not run.places:
        return
    slowest = run.worst(lambda place: place.idle_ns("launch_bound"))
    idle_ns = slowest.idle_ns("launch_bound")
    share = slowest.share(idle_ns)
    if share < at["min_launch_bound_share"]:
        return
    fullest = max(known, key=lambda reserve: reserve.peak_bytes / reserve.capacity_bytes)
    free = 1 - fullest.peak_bytes / fullest.capacity_bytes
    if free < at["min_free_share"]:
        return
    gain = throughput(run, at["batch_factor"])
    least, likely, most = (percent(times - 1) for times in gain) if gain else (0.0, 0.0, 0.0)  # where not simulated
    yield Finding(
        rule="memory-headroom",
        saving_ns_per_step=NO_SAVING,
        confidence="medium",
        values={
            "reserved_mib": mib(fullest.peak_bytes),
            "capacity_mib": mib(fullest.capacity_bytes),
            "free_percent": percent(free),
            "idle_percent": percent(share),
            "more_samples_percent": likely,
            "least_percent": least,
            "most_percent": most,
        },
        evidence=(
            Measure(f"most that was reserved on rank {fullest.rank}", fullest.peak_bytes, "bytes"),
            Measure("memory of the GPU", fullest.capacity_bytes, "bytes"),
            Measure("idle because the host launches too slowly", slowest.per_step(idle_ns), "ns"),
            *([Measure("more samples a second with twice the batch", gain[1] - 1, "share")] if gain else []),
        ),
    )
