"""Tensors are copied from one place of the device's memory to another, with nothing beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_copies
from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.metrics.copies.transfers import by_op, copies_of
from perfdoctor.metrics.finding_rows import kernels_and_copies
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find memcpy only: a copy that a kernel makes (`contiguous` of a transposed tensor) looks like arithmetic."""
    found = of_copies(run, lambda place: copies_of(place, "d2d"), at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="on-device-copies",
        saving=Shares(0.0, at["avoidable_share_likely"]).of(found.ns),
        confidence="medium",
        values=found.copy_values(),
        evidence=(
            Measure("copies within the device with nothing beside them", found.ns, "ns"),
            by_op(found.worst, found.worst_rows, f"Copies within the device of rank {found.worst.rank}, a step"),
        ),
        acts_on=lambda place: kernels_and_copies(place, copies=copies_of(place, "d2d")),
    )
