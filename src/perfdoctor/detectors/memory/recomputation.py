"""Forward work is done a second time, inside the backward pass (activation checkpointing)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.savings import shares
from perfdoctor.metrics.kernels.recompute import recomputed
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Kernels launched by functions of the forward pass from inside nodes of the backward pass."""
    found = of_kernels(run, recomputed, at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="recomputation",
        saving=shares(at, "avoidable_share").of(found.ns),
        confidence="medium",
        values={"kernels_per_step": found.per_step, **found.time_values("again")},
        evidence=found.kernel_evidence("kernels of forward work done again, a step"),
    )
