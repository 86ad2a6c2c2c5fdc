"""Kernels that Nsight Compute measured far from every limit of the device, for a reason that it does not tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.findings import Finding, Saving
from perfdoctor.metrics.kernel_limits import Bounds, claim, evidence
from perfdoctor.metrics.kernel_profiles import Floats, Measured
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.units import ms, percent


def _share_won(kernels: Measured, reached: float, *, capped: bool) -> Floats:
    """Of its time, where its busiest unit came to `reached`; no more than NVIDIA's own rules hope for, if they do."""
    share = 1 - kernels.busiest_share / reached
    return np.fmin(share, kernels.estimated_share) if capped else share


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """What lies between where they are and where good kernels come to; all of the way to the peak is the most."""
    bounds = Bounds(
        at["min_excess_share"], at["max_busy_share"], at["max_occupancy_share"], at["min_kernel_ns"]
    )  # fmt: skip
    found = claim(run, bounds.other)
    if not found.rows.any() or found.share < at["min_share_of_step"]:
        return
    yield Finding(
        rule="kernels-far-from-roofline",
        saving_ns_per_step=Saving(
            found.won_ns(lambda kernels: _share_won(kernels, at["reached_share_low"], capped=True)),
            found.won_ns(lambda kernels: _share_won(kernels, at["reached_share_likely"], capped=True)),
            found.won_ns(lambda kernels: _share_won(kernels, at["reached_share_high"], capped=False)),
        ),
        confidence="medium",
        values={
            "kernels": found.rows.sum() / found.units,
            "kernels_ms": ms(found.time_ns),
            "step_ms": ms(found.whole_ns),
            "kernels_percent": percent(found.share),
            "busy_percent": percent(found.mean(found.kernels.busiest_share)),
        },
        evidence=evidence(found, {"how busy their busiest unit is": found.kernels.busiest_share}),
        situation="alone" if found.alone else "",
        work=found.work(),
        counted_ns=0 if found.alone else found.time_ns,
    )
