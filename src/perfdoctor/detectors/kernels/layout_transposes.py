"""Kernels that only turn channels to the front or to the back, around convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.names import kernels as kernel_names


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find kernels that only change the layout, by the names that the libraries give them."""
    changes_layout = kernel_names.is_layout_change
    found = of_kernels(run, lambda place: place.kernels.name.where(changes_layout), at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="layout-transposes",
        saving=shares(at, "avoidable_share").of(found.ns),
        confidence="high",
        values=found.kernel_values(),
        evidence=found.kernel_evidence("kernels that change the layout a step"),
    )
