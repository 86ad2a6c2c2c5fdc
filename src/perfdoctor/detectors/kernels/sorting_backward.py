"""Gradients of look-ups are summed by sorting the indices first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.host_rows import named
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names


def _sorting(place: Place) -> Mask:
    """Sorts count only where an op tells that a gradient asked for them: programs sort for other reasons too."""
    names, gradients = place.kernels.name, named(place.timeline, "ops", torch_names.LOOK_UP_GRADIENT)
    by_gradient = launches_of(place, "kernels").inside_of("ops", gradients)
    return names.matches(kernel_names.SUMS_SORTED) | (names.matches(kernel_names.SORTS) & by_gradient)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """By the kernels of those gradients, and the sorts that their ops launch."""

    def total_ns(place: Place) -> int:
        return place.alone_ns(_sorting(place))

    if not run.places or run.share(total_ns) < at["min_share_of_step"]:
        return
    total, worst = run.mean(total_ns), run.worst(total_ns)
    rows = _sorting(worst)
    yield Finding(
        rule="sorting-backward",
        saving_ns_per_step=saving(total, at["avoidable_share_low"], at["avoidable_share_likely"]),
        confidence="medium",
        values={
            "kernels_per_step": rows.sum() / worst.units,
            "kernels_ms": ms(total),
            "step_ms": ms(run.step_ns),
            "kernels_percent": percent(run.share(total_ns)),
        },
        evidence=(
            Measure("kernels that sort and sum a step", rows.sum() / worst.units, "count"),
            Measure("their time", total, "ns"),
            largest(worst, rows, "Largest of them, a step"),
        ),
        work=work_of(run, _sorting),
        affected_ns=total,
    )
