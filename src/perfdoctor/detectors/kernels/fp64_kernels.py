"""Kernels other than matrix multiplications that compute on 64-bit numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import MATMUL_FAMILIES, Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import kernels as kernel_names


def _wide(place: Place) -> Mask:
    """Products with a vector are bound by memory and count here; those of matrices are fp32-matmuls'."""
    names = place.kernels.name
    vector = names.where(_is_vector_product)
    return vector | (names.matches(kernel_names.ON_FP64) & ~place.kernel_rows(*MATMUL_FAMILIES))


def _is_vector_product(name: str) -> bool:
    return kernel_names.is_vector_product(name) and kernel_names.input_type(name) == "fp64"


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """By the type in their names."""

    def total_ns(place: Place) -> int:
        return place.alone_ns(_wide(place))

    if not run.places or run.share(total_ns) < at["min_share_of_step"]:
        return
    total, worst = run.mean(total_ns), run.worst(total_ns)
    rows = _wide(worst)
    yield Finding(
        rule="fp64-kernels",
        saving_ns_per_step=saving(total, at["avoidable_share_low"], at["avoidable_share_likely"]),
        confidence="medium",
        values={
            "kernels_per_step": rows.sum() / worst.units,
            "kernels_ms": ms(total),
            "step_ms": ms(run.step_ns),
            "kernels_percent": percent(run.share(total_ns)),
        },
        evidence=(
            Measure("kernels on 64-bit numbers a step", rows.sum() / worst.units, "count"),
            Measure("their time", total, "ns"),
            largest(worst, rows, "Largest of them, a step"),
        ),
        work=work_of(run, _wide),
        counted_ns=total,
    )
