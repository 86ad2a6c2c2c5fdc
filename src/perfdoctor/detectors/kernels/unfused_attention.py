"""Attention is computed step by step: scores to memory, softmax over them, and the product with the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.saved_shares import saving_in_cases
from perfdoctor.hardware.attention import Attention, fused_attention
from perfdoctor.hardware.peaks import Peaks
from perfdoctor.metrics.finding_rows import largest, saved_alone_ns
from perfdoctor.metrics.kernels.attention import AttentionPieces, attentions, sizes
from perfdoctor.metrics.units import ms
from perfdoctor.metrics.work.device_peaks import peaks
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Floats, Ints, Mask
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.records.savings import CASES

#: Scores and result; and the gradients of their four factors.
_PRODUCTS, _GRADIENTS_PRODUCTS = 2, 4
#: How many sizes the table names.
_TABLE_ROWS = 5


class _AttentionCost(Struct, frozen=True):
    """How long the attentions of a place take in its window, one element each, in ns. `rows`: their kernels.

    `whole_products_ns`: all of its products, those elsewhere included. `fused_ns`: in each of CASES, NaN where unknown.
    """

    pieces: AttentionPieces
    rows: Mask
    own_ns: Floats
    products_ns: Floats
    whole_products_ns: Floats
    sizes: Sequence[Attention | None]
    fused_ns: Mapping[str, Floats]


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find attentions whose kernels between the two products a fused kernel makes needless, as fast as published."""

    @once_per_place
    def cost(place: Place) -> _AttentionCost:
        return _cost(place, attentions(place, at["max_kernels_between_products"]))

    between = of_kernels(run, lambda place: cost(place).pieces.between)
    found = of_kernels(run, lambda place: cost(place).rows)
    if between is None or found is None or not between.ns:
        return

    saving = saving_in_cases(run, lambda place, case: _saved_ns(place, cost(place), at, case))
    if saving.likely < at["min_share_of_step"] * run.step_ns:
        return
    worst = cost(found.worst)
    passes_per_step = worst.pieces.count / found.worst.units
    by_size = bool((~np.isnan(worst.fused_ns["likely"])).any())
    yield found.finding(
        rule="unfused-attention",
        saving=saving,
        confidence="high" if by_size else "medium",
        values={
            "times_per_step": passes_per_step,
            **between.time_values("between"),
            "attention_ms": ms(found.ns),
            "fused_ms": ms(found.ns - saving.likely),
            "fused_at_most_ms": ms(found.ns - saving.low),
            "fused_at_least_ms": ms(found.ns - saving.high),
        },
        evidence=(
            Measure("passes through unfused attention a step", passes_per_step, "count"),
            Measure("time between the two products", between.ns, "ns"),
            Measure("time of the products themselves", max(found.ns - between.ns, 0), "ns"),
            Measure("a fused kernel instead of both", found.ns - saving.likely, "ns"),
            *_by_size(found.worst, worst),
            largest(found.worst, worst.pieces.between, "Largest kernels between them, a step"),
        ),
    )


def _cost(place: Place, pieces: AttentionPieces) -> _AttentionCost:
    """What the attentions of this place take now, and fused."""
    belongs: Mask = pieces.number != UNKNOWN

    def of_each(rows: Mask, weights: Ints | None = None) -> Floats:
        own = None if weights is None else weights[rows]
        return np.bincount(pieces.number[rows], weights=own, minlength=pieces.count).astype(float)

    product = belongs & ~pieces.between
    products, found = of_each(product, place.kernel_ns), of_each(product)
    # Of a gradient's four products some may be elsewhere: they take what the others do.
    whole = products * np.where(pieces.backward, _GRADIENTS_PRODUCTS, _PRODUCTS) / np.maximum(found, 1)
    known, limits = sizes(place, pieces), peaks(place)
    each = list(zip(known, pieces.masked.tolist(), whole, strict=True))
    fused = {case: np.array([_fused_ns(size, limits, case, *rest) for size, *rest in each]) for case in CASES}
    return _AttentionCost(pieces, belongs, of_each(belongs, place.kernel_ns), products, whole, known, fused)


def _fused_ns(size: Attention | None, limits: Peaks | None, case: str, masked: bool, products_ns: float) -> float:
    """Ns of one attention, fused; NaN where its size or GPU is unknown, or its products outran the recorded GPU.

    A mask is taken for a causal one only where the most is asked for that fusing can save.
    """
    if size is None or limits is None:
        return float("nan")
    half, wide = limits.half_flop_per_second, max(limits.tf32_flop_per_second, limits.fp32_flop_per_second)
    count = _GRADIENTS_PRODUCTS if size.backward else _PRODUCTS
    least = 2.0 * count * size.batch * size.queries * size.keys * size.size / max(wide if size.is_wide else half, 1)
    if least * 1e9 > products_ns > 0:
        return float("nan")
    found = fused_attention(size, limits, case, causal=masked and case == "high")
    return found[0] * 1e9 if found else float("nan")


def _saved_ns(place: Place, cost: _AttentionCost, at: Mapping[str, float], case: str) -> float:
    """Ns saved in the window: of what these kernels take alone, all that the fused ones do not need."""
    by_products = cost.whole_products_ns * at[f"fused_to_products_{case}"]
    fused = np.where(np.isnan(cost.fused_ns[case]), by_products, cost.fused_ns[case])
    elsewhere = cost.whole_products_ns - cost.products_ns
    saved = float(np.clip(cost.own_ns + elsewhere - fused, 0, cost.own_ns).sum())
    return saved_alone_ns(place, cost.rows, saved)


def _by_size(place: Place, cost: _AttentionCost) -> tuple[Rows, ...]:
    """How long attentions of each size take now and fused, and where that was published; () without known sizes."""
    limits, fused = peaks(place), cost.fused_ns["likely"]
    different: dict[Attention, list[int]] = {}
    for number, size in enumerate(cost.sizes):
        if size is not None and not np.isnan(fused[number]):
            different.setdefault(size, []).append(number)
    rows = []
    for size, own in sorted(different.items(), key=lambda each: -cost.own_ns[each[1]].sum())[:_TABLE_ROWS]:
        found = fused_attention(size, limits, "likely", causal=False) if limits else None
        text = f"{size.batch} × {size.queries} × {size.keys} × {size.size}"
        rows.append((
            text, "backward" if size.backward else "forward", len(own) / place.units,
            int(cost.own_ns[own].sum() / place.units), int(fused[own].sum() / place.units), found[1] if found else "",
        ))  # fmt: skip
    if not rows:
        return ()
    columns = ("heads of the batch × queries × keys × head size", "pass", "count", "time", "fused", "published in")
    return (Rows("Attentions by size, a step", columns, ("text", "text", "count", "ns", "ns", "text"), tuple(rows)),)
