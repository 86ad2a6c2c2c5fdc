"""Attention is computed step by step: scores to memory, softmax over them, and the product with the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.savings import shares
from perfdoctor.metrics.kernels.attention import attention_pieces
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """The kernels between the two products: a fused kernel has none of them."""

    @once_per_place
    def pieces(place: Place) -> tuple[Mask, int]:
        return attention_pieces(place, at["max_kernels_between_products"])

    found = of_kernels(run, lambda place: pieces(place)[0])
    if found is None or not found.ns or found.share * at["avoidable_share_likely"] < at["min_share_of_step"]:
        return
    passes_per_step = pieces(found.worst)[1] / found.worst.units
    yield found.finding(
        rule="unfused-attention",
        saving=shares(at, "avoidable_share").of(found.ns),
        confidence="high" if len(run.timeline.ops) else "medium",
        values={"times_per_step": passes_per_step, **found.time_values("between")},
        evidence=(
            Measure("passes through unfused attention a step", passes_per_step, "count"),
            Measure("time between the two products", found.ns, "ns"),
            largest(found.worst, found.worst_rows, "Largest kernels between them, a step"),
        ),
    )
