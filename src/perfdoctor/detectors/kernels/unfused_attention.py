"""Attention is computed step by step: scores to memory, softmax over them, and the product with the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.kernels.attention import attention_pieces
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """The kernels between the two products: a fused kernel has none of them."""
    found = {id(place): attention_pieces(place, at["max_kernels_between_products"]) for place in run.places}

    def between_ns(place: Place) -> int:
        return place.alone_ns(found[id(place)][0])

    share = run.share(between_ns) if run.places else 0.0
    if not share or share * at["avoidable_share_likely"] < at["min_share_of_step"]:
        return
    total_ns, worst = run.mean(between_ns), run.worst(between_ns)
    rows, count = found[id(worst)]
    yield Finding(
        rule="unfused-attention",
        saving_ns_per_step=saving(total_ns, at["avoidable_share_low"], at["avoidable_share_likely"]),
        confidence="high" if len(run.timeline.ops) else "medium",
        values={
            "times_per_step": count / worst.units,
            "between_ms": ms(total_ns),
            "step_ms": ms(run.step_ns),
            "between_percent": percent(share),
        },
        evidence=(
            Measure("passes through unfused attention a step", count / worst.units, "count"),
            Measure("time between the two products", total_ns, "ns"),
            largest(worst, rows, "Largest kernels between them, a step"),
        ),
        work=work_of(run, lambda place: found[id(place)][0]),
        affected_ns=total_ns,
    )
