"""Kernels that only turn channels to the front or to the back, around convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import kernels as kernel_names


def _layout(place: Place) -> Mask:
    return place.kernels.name.where(kernel_names.is_layout_change)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """By the names that the libraries give them."""

    def total_ns(place: Place) -> int:
        return place.alone_ns(_layout(place))

    if not run.places or run.share(total_ns) < at["min_share_of_step"]:
        return
    total, worst = run.mean(total_ns), run.worst(total_ns)
    rows = _layout(worst)
    yield Finding(
        rule="layout-transposes",
        saving_ns_per_step=saving(total, at["avoidable_share_low"], at["avoidable_share_likely"]),
        confidence="high",
        values={
            "kernels_per_step": rows.sum() / worst.units,
            "kernels_ms": ms(total),
            "step_ms": ms(run.step_ns),
            "kernels_percent": percent(run.share(total_ns)),
        },
        evidence=(
            Measure("kernels that change the layout a step", rows.sum() / worst.units, "count"),
            Measure("their time", total, "ns"),
            largest(worst, rows, "Largest of them, a step"),
        ),
        work=work_of(run, _layout),
        affected_ns=total,
    )
