"""Gradients of look-ups are summed by sorting the indices first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.model.columns import Mask
from perfdoctor.model.host_rows import named
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names


def _sorting(place: Place) -> Mask:
    """One bool a kernel: does it sum by sorting? Sorts count only where an op of a gradient launched them."""
    names, gradients = place.kernels.name, named(place.timeline, "ops", torch_names.LOOK_UP_GRADIENT)
    by_gradient = launches_of(place, "kernels").inside_of("ops", gradients)
    return names.matches(kernel_names.SUMS_SORTED) | (names.matches(kernel_names.SORTS) & by_gradient)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the kernels of those gradients, and the sorts that their ops launch."""
    found = of_kernels(run, _sorting, at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="sorting-backward",
        saving=shares(at, "avoidable_share").of(found.ns),
        confidence="medium",
        values=found.kernel_values(),
        evidence=found.kernel_evidence("kernels that sort and sum a step"),
    )
