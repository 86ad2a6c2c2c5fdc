"""Gradients of look-ups are summed by sorting the indices first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.savings import shares
from perfdoctor.metrics.kernels.sets import launching_rows
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names


def _sorting(place: Place) -> Mask:
    """Sorts count only where an op tells that a gradient asked for them: programs sort for other reasons too."""
    names, ops = place.kernels.name, place.timeline.ops.of(rank=place.rank)
    by_gradient, _ = launching_rows(place, ops.take(ops.name.matches(torch_names.LOOK_UP_GRADIENT)))
    return names.matches(kernel_names.SUMS_SORTED) | (names.matches(kernel_names.SORTS) & (by_gradient >= 0))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """By the kernels of those gradients, and the sorts that their ops launch."""
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
