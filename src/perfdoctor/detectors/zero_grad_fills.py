"""Gradients are filled with zeros at every step, instead of being let go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.transfers import copies_of, exposed_ns
from perfdoctor.metrics.units import ms, percent
from perfdoctor.metrics.zero_grad import filled_by_zero_grad
from perfdoctor.timeline.model import Mask


def _memsets(place: Place) -> Mask:
    rows: Mask = copies_of(place, "memset") & filled_by_zero_grad(place, place.copies)
    return rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Short kernels belong to small-kernels, the gaps between them to launch-bound."""

    def fills(place: Place) -> Mask:
        rows: Mask = filled_by_zero_grad(place, place.kernels) & (place.kernels.duration_ns >= at["short_kernel_ns"])
        return rows

    def filling_ns(place: Place) -> int:
        return place.alone_ns(fills(place)) + exposed_ns(place, _memsets(place))

    share = run.share(filling_ns)
    if share < at["min_share_of_step"]:
        return
    filling, worst = run.mean(filling_ns), run.worst(filling_ns)
    count = int(filled_by_zero_grad(worst, worst.kernels).sum()) + int(_memsets(worst).sum())
    yield Finding(
        rule="zero-grad-fills",
        saving_ns_per_step=saving(filling, at["avoidable_share_low"], at["avoidable_share_likely"]),
        confidence="high",
        values={
            "fills_per_step": count / worst.units,
            "filling_ms": ms(filling),
            "step_ms": ms(run.step_ns),
            "filling_percent": percent(share),
        },
        evidence=(
            Measure("kernels and memsets launched in zero_grad, a step", count / worst.units, "count"),
            Measure("time in which nothing else ran", filling, "ns"),
        ),
        symptom_of=("exposed-copies",) if 2 * exposed_ns(worst, _memsets(worst)) > filling_ns(worst) else (),
    )
