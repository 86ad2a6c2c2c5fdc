"""The loss over many classes is computed step by step, each step a pass over all scores."""

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


def _loss(place: Place) -> Mask:
    """PyTorch's own: the logarithm of the softmax and the loss. What a compiler has made is fused already."""
    names = place.kernels.name
    return names.matches(kernel_names.CROSS_ENTROPY) & ~names.where(kernel_names.is_compiled)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """By the names of PyTorch's kernels for it."""

    def total_ns(place: Place) -> int:
        return place.alone_ns(_loss(place))

    if not run.places or run.share(total_ns) < at["min_share_of_step"]:
        return
    total, worst = run.mean(total_ns), run.worst(total_ns)
    rows = _loss(worst)
    yield Finding(
        rule="unfused-cross-entropy",
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
            Measure("kernels of the loss a step", rows.sum() / worst.units, "count"),
            Measure("their time", total, "ns"),
            largest(worst, rows, "Largest of them, a step"),
        ),
        work=work_of(run, _loss),
        affected_ns=total,
    )
