"""Kernels that pass over their numbers as fast as the memory gives them: only fewer bytes make them shorter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from perfdoctor.metrics.kernels.memory_bandwidth import Rates, rates
from perfdoctor.metrics.kernels.profiles import measured
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving


def _told(place: Place, least_excess_share: float) -> tuple[Rates, Mask]:
    """What shapes and times tell, and in its place what Nsight Compute measured; which kernels it measured.

    Bytes that are fetched in vain need not be moved: of kernels that fetch many, nothing is said.
    """
    told, found = rates(place), measured(place)
    share, moved = found.number("dram_share"), found.number("dram_bytes")
    known = ~np.isnan(share) & (told.peak_bytes_per_second > 0)
    share = np.where(found.number("excess_sector_share") >= least_excess_share, 0.0, share)
    moved = np.where(np.isnan(moved), share * told.peak_bytes_per_second * place.kernels.duration_ns / 1e9, moved)
    both = np.where(known, moved, told.moved_bytes), np.where(known, share, told.share_of_peak)
    return replace(told, moved_bytes=both[0], share_of_peak=both[1]), known


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Measured, or proven by shapes, types and time; what a compiler would save is elementwise-chains' to say."""
    of_place, near = {}, {}
    for place in run.places:
        told, known = _told(place, at["min_excess_share"])
        by_shape = told.near(at["min_share_of_peak"], at["faster_than_memory"], at["min_moved_bytes"])
        # What the memory itself counted came out of no cache.
        near[id(place)] = np.where(known, told.share_of_peak >= at["min_share_of_peak"], by_shape)
        of_place[id(place)] = told

    def near_ns(place: Place) -> int:
        return place.alone_ns(near[id(place)])

    if not run.places or run.share(near_ns) < at["min_share_of_step"]:
        return
    worst = run.worst(near_ns)
    rows, found = near[id(worst)], of_place[id(worst)]
    moved = float(found.moved_bytes[rows].sum())
    share = float(np.average(found.share_of_peak[rows], weights=worst.kernels.duration_ns[rows]))
    compute = run.mean(lambda place: place.compute.total_ns)
    yield Finding(
        rule="memory-bound-kernels",
        saving_ns_per_step=Saving(0, 0, 0),
        confidence="medium",
        values={
            "near_ms": ms(run.mean(near_ns)),
            "step_ms": ms(run.step_ns),
            "compute_percent": percent(run.mean(near_ns) / max(compute, 1)),
            "peak_percent": percent(share),
            "peak_gb_per_second": found.peak_bytes_per_second / 1e9,
        },
        evidence=(
            Measure("kernels at the limit of the memory", run.mean(near_ns), "ns"),
            Measure("bytes that they move a step, at the least", moved / worst.units, "bytes"),
            Measure(
                "kernels whose bytes are known", run.mean(lambda p: p.alone_ns(of_place[id(p)].moved_bytes > 0)), "ns"
            ),
            largest(worst, rows, "Largest of them, a step"),
        ),
    )
