"""Gradients are filled with zeros at every step, instead of being let go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.transfers import copies_of, exposed_ns
from perfdoctor.metrics.units import ms, percent
from perfdoctor.metrics.zero_grad import added_to_gradients, filled_by_zero_grad
from perfdoctor.timeline.model import Mask


def _memsets(place: Place) -> Mask:
    rows: Mask = copies_of(place, "memset") & filled_by_zero_grad(place, place.copies)
    return rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Short kernels belong to small-kernels, the gaps between them to launch-bound."""
    parts = {id(place): _parts_ns(place, at) for place in run.places}

    def total_ns(place: Place) -> float:
        return sum(parts[id(place)])

    share = run.share(total_ns)
    if share < at["min_share_of_step"]:
        return
    total, worst = run.mean(total_ns), run.worst(total_ns)
    adding = run.mean(lambda place: parts[id(place)][1])
    count = int(filled_by_zero_grad(worst, worst.kernels).sum()) + int(_memsets(worst).sum())
    yield Finding(
        rule="zero-grad-fills",
        saving_ns_per_step=saving(total, at["avoidable_share_low"], at["avoidable_share_likely"]),
        confidence="high",
        values={
            "fills_per_step": count / worst.units,
            "filling_ms": ms(total),
            "adding_ms": ms(adding),
            "step_ms": ms(run.step_ns),
            "filling_percent": percent(share),
        },
        evidence=(
            Measure("kernels and memsets launched in zero_grad, a step", count / worst.units, "count"),
            Measure("their time in which nothing else ran", total - adding, "ns"),
            Measure("time of adding to what they filled", adding, "ns"),
        ),
        symptom_of=("exposed-copies",) if 2 * exposed_ns(worst, _memsets(worst)) > total_ns(worst) else (),
    )


def _parts_ns(place: Place, at: Mapping[str, float]) -> tuple[float, float]:
    """Filling, and adding to what was filled: once for each fill, as micro-batches would add up in any case."""
    long = place.kernels.duration_ns >= at["short_kernel_ns"]
    filling = place.alone_ns(filled_by_zero_grad(place, place.kernels) & long) + exposed_ns(place, _memsets(place))
    if not filling:
        return 0, 0
    adding = place.alone_ns(added_to_gradients(place) & long)
    return filling, min(adding, at["passes_of_an_addition"] * filling)
