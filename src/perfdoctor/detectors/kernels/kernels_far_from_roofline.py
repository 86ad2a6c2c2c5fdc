"""Kernels that Nsight Compute measured far from every limit of the device, with no reason in its counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.kernels.limits import Bounds, claim, evidence
from perfdoctor.metrics.kernels.profiles import Measured
from perfdoctor.metrics.units import percent
from perfdoctor.model.columns import Floats
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find such kernels; likely a fix brings them to where good kernels come, and at most to the peak."""
    bounds = Bounds(at["min_excess_share"], at["min_kernel_ns"], at["max_busy_share"], at["max_occupancy_share"])
    found = claim(run, bounds.other)
    if not found.rows.any() or found.share < at["min_share_of_step"]:
        return

    def share_won(kernels: Measured, case: str) -> Floats:
        return 1 - kernels.busiest_share / at[f"reached_share_{case}"]

    saving = found.saving(share_won, lambda kernels: kernels.estimated_share)
    gain_ns = found.measured_gain_ns(share_won)
    yield Finding(
        rule="kernels-far-from-roofline",
        saving_ns_per_step=saving,
        bound_ns=saving.high,  # no kernel gets beyond its roof
        confidence="medium",
        values={
            **found.sentence_values(gain_ns),
            "busy_percent": percent(found.mean(found.kernels.busiest_share)),
        },
        evidence=evidence(found, {"how busy their busiest unit is": found.kernels.busiest_share}),
        situation="alone" if found.alone else "",
        work=found.work(),
        affected_ns=found.affected_ns,
        measured_gain_ns=gain_ns,
    )
