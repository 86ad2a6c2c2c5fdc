"""Kernels that only turn numbers of one type into another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.kernels.optimizer import in_optimizer
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import kernels as kernel_names


def _casts(place: Place, at_least_ns: float) -> Mask:
    """Short ones are small-kernels', and those of an optimizer belong to its update: unfused-optimizer's."""
    kernels = place.kernels
    # Casts to 64 bits are fp64-kernels', since nobody wants those for mixed precision.
    casts = kernels.name.matches(kernel_names.CAST) & ~kernels.name.matches(kernel_names.CAST_TO_FP64)
    rows: Mask = casts & (kernels.duration_ns >= at_least_ns) & ~in_optimizer(place)
    return rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """By name: copies that convert. Kernels that compute something as well convert for nothing."""

    def total_ns(place: Place) -> int:
        return place.alone_ns(_casts(place, at["memory_bound_kernel_ns"]))

    if not run.places or run.share(total_ns) < at["min_share_of_step"]:
        return
    total, worst = run.mean(total_ns), run.worst(total_ns)
    rows = _casts(worst, at["memory_bound_kernel_ns"])
    yield Finding(
        rule="precision-casts",
        saving_ns_per_step=saving(
            total, at["avoidable_share_low"], at["avoidable_share_likely"], at["avoidable_share_high"]
        ),
        confidence="medium",
        values={
            "kernels_per_step": rows.sum() / worst.units,
            "kernels_ms": ms(total),
            "step_ms": ms(run.step_ns),
            "kernels_percent": percent(run.share(total_ns)),
        },
        evidence=(
            Measure("casts a step", rows.sum() / worst.units, "count"),
            Measure("their time", total, "ns"),
            largest(worst, rows, "Largest of them, a step"),
        ),
        work=work_of(run, lambda place: _casts(place, at["memory_bound_kernel_ns"])),
        affected_ns=total,
    )
