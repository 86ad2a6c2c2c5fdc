"""Kernels that only turn numbers of one type into another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.metrics.kernels.chains import fused_casts
from perfdoctor.metrics.kernels.optimizer import in_optimizer
from perfdoctor.metrics.units import ms
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.names import kernels as kernel_names


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find copies that convert, by name: kernels that compute something as well convert for nothing."""

    @once_per_place
    def casts(place: Place) -> Mask:
        # Short ones are small-kernels', those of an optimizer unfused-optimizer's, and those to 64 bits fp64-kernels',
        # since nobody wants these for mixed precision.
        kernels = place.kernels
        rows = kernels.name.matches(kernel_names.CAST) & ~kernels.name.matches(kernel_names.CAST_TO_FP64)
        return rows & (kernels.duration_ns >= at["memory_bound_kernel_ns"]) & ~in_optimizer(place)

    found = of_kernels(run, casts, at["min_share_of_step"])
    if found is None:
        return

    def fused_ns(place: Place, *, both_sides: bool) -> int:
        return place.alone_ns(fused_casts(place, casts(place), both_sides=both_sides))

    low, likely = (run.mean(partial(fused_ns, both_sides=both)) for both in (True, False))
    saving = Saving(min(low, likely, found.ns), min(likely, found.ns), found.ns)
    yield found.finding(
        rule="precision-casts",
        saving=saving,
        confidence="medium",
        values={**found.kernel_values(), "fusable_ms": ms(saving.likely), "between_ms": ms(saving.low)},
        evidence=(
            *found.kernel_evidence("casts a step"),
            Measure("of them beside a kernel that could cast itself", likely, "ns"),
        ),
    )
