"""Kernels that pass over their numbers as fast as the memory gives them: only fewer bytes make them shorter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.counters.kinds import counted_evidence, of_names
from perfdoctor.metrics.finding_rows import largest
from perfdoctor.metrics.kernels.kernel_limits import limited_by
from perfdoctor.metrics.kernels.limits import claim, evidence
from perfdoctor.metrics.kernels.memory_bandwidth import Rates, rates
from perfdoctor.metrics.kernels.profiles import Measured, measured
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names.base_names import base_name


@once_per_place
def _rates(place: Place, least_excess_share: float) -> tuple[Rates, Mask]:
    """The rates that Nsight Compute measured, else the GPU's counters did, else shapes and times show; and one bool a
    kernel: was it measured?

    Bytes that are fetched in vain need not be moved: kernels that fetch many count as far from the peak.
    """
    by_shape, found = rates(place), measured(place)
    share, moved = found.number("dram_share"), found.number("dram_bytes")
    share = np.where(np.isnan(share), of_names(place, place.kernels.name, "dram_share"), share)
    known = ~np.isnan(share) & (by_shape.peak_bytes_per_second > 0)
    share = np.where(found.number("excess_sector_share") >= least_excess_share, 0.0, share)
    moved = np.where(np.isnan(moved), share * by_shape.peak_bytes_per_second * place.kernels.duration_ns / 1e9, moved)
    moved, share = np.where(known, moved, by_shape.moved_bytes), np.where(known, share, by_shape.share_of_peak)
    return replace(by_shape, moved_bytes=moved, share_of_peak=share), known


def _near(place: Place, at: Mapping[str, float]) -> Mask:
    found, known = _rates(place, at["min_excess_share"])
    by_shape = found.near(at["min_share_of_peak"], at["faster_than_memory"], at["min_moved_bytes"])
    # What the memory itself counted came out of no cache.
    return np.where(known, found.share_of_peak >= at["min_share_of_peak"], by_shape)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find kernels at the limit of the memory, measured or proven by shapes, types and time; chains have a rule."""
    if not run.places:
        yield from _alone(run, at)
        return
    found = of_kernels(run, lambda place: _near(place, at), at["min_share_of_step"])
    if found is None:
        return
    rows, worst = found.worst_rows, found.worst
    of_worst, _ = _rates(worst, at["min_excess_share"])
    moved = float(of_worst.moved_bytes[rows].sum())
    share = float(np.average(of_worst.share_of_peak[rows], weights=worst.kernels.duration_ns[rows]))
    known_ns = run.mean(lambda place: place.alone_ns(_rates(place, at["min_excess_share"])[0].moved_bytes > 0))
    compute = run.mean(lambda place: place.compute.total_ns)
    longest = largest(worst, rows, "Largest of them, a step")
    yield Finding(
        rule="memory-bound-kernels",
        saving_ns_per_step=NO_SAVING,
        confidence="medium",
        values={
            "near_ms": ms(found.ns),
            "step_ms": ms(run.step_ns),
            "compute_percent": percent(found.ns / max(compute, 1)),
            "peak_percent": percent(share),
            "peak_gb_per_second": of_worst.peak_bytes_per_second / 1e9,
            "name": base_name(str(longest.rows[0][0])) if longest.rows else "",
            "at_peak_ms": ms(share * found.ns),
        },
        evidence=(
            Measure("kernels at the limit of the memory", found.ns, "ns"),
            Measure("bytes that they move a step, at the least", moved / worst.units, "bytes"),
            Measure("kernels whose bytes are known", known_ns, "ns"),
            *counted_evidence(worst, rows),
            longest,
        ),
    )


def _alone(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find them among launches that Nsight Compute measured without a timeline: its counters prove their limit."""

    def near(kernels: Measured) -> Mask:
        rows: Mask = limited_by(kernels, "memory") & (kernels.number("dram_share") >= at["min_share_of_peak"])
        return rows

    found = claim(run, near)
    if not found.rows.any() or found.share < at["min_share_of_step"]:
        return
    share, peak = (found.kernels.number(column) for column in ("dram_share", "peak_dram_bytes_per_second"))
    gain_ns = found.measured_gain_ns(lambda *_: 1 - share)
    said = found.sentence_values(gain_ns)
    updates = found.kernels.rows.name.has(kernel_names.family, "optimizer")
    updating_ns = found.kernels.time_ns[found.rows & updates].sum()
    yield Finding(
        rule="memory-bound-kernels",
        saving_ns_per_step=NO_SAVING,
        confidence="high",
        values={
            "near_ms": said["kernels_ms"],
            "step_ms": said["step_ms"],
            "compute_percent": said["kernels_percent"],
            "peak_percent": percent(found.mean(share)),
            "peak_gb_per_second": float(np.nan_to_num(found.mean(peak))) / 1e9,
            "name": said["name"],
            "at_peak_ms": said["at_peak_ms"],
        },
        evidence=evidence(found, {"how much of its peak the memory moves": share}, with_advice=False),
        situation="alone optimizer" if 2 * updating_ns > found.time_ns else "alone",
        measured_gain_ns=gain_ns,
    )
