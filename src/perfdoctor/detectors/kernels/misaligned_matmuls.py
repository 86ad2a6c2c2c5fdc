"""Matrix multiplications whose sizes keep tensor cores from being fed in whole pieces of 16 bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.saved_shares import saving_in_cases
from perfdoctor.metrics.counters.kinds import of_names
from perfdoctor.metrics.finding_rows import largest, saved_alone_ns
from perfdoctor.metrics.grouping import weighted_mean
from perfdoctor.metrics.kernels.attention import attentions
from perfdoctor.metrics.kernels.matmul_sizes import Misaligned, misaligned_matmuls, padded
from perfdoctor.metrics.kernels.profiles import on_tensor_cores, tensor_evidence
from perfdoctor.metrics.work.half_precision import half_products
from perfdoctor.metrics.work.roofline import least_ns
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Floats
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.vocabulary.names import kernels as kernel_names

#: How many sizes the table names.
_TABLE_ROWS = 5
#: Products of so many times as many FLOP reach about the same share of what their GPU allows.
_ALIKE = 4.0
_HOPPER = (9, 0)


@once_per_place
def _as_aligned_ns(place: Place) -> Floats:
    """What each misaligned kernel takes if it comes as near to its roof as aligned ones of its size here; NaN: unknown.

    Both by their FLOP and bytes, which count a product of `_ALIKE` times as many FLOP, or as few, as one of its size.
    """
    found, floor, ns = misaligned_matmuls(place), least_ns(place, at_best=False), place.kernel_ns.astype(float)
    expected = np.full(ns.size, np.nan)
    others = ~found.rows & (floor > 0) & (floor < ns) & place.kernel_rows("gemm")
    order = np.flatnonzero(others)[np.argsort(floor[others], kind="stable")]
    roof, own = np.r_[0.0, np.cumsum(floor[order])], np.r_[0.0, np.cumsum(ns[order])]
    rows = np.flatnonzero(found.rows & (floor > 0) & (floor < ns))
    begin, end = (np.searchsorted(floor[order], floor[rows] * each) for each in (1 / _ALIKE, _ALIKE))
    there = end > begin
    longer = (own[end] - own[begin])[there] / (roof[end] - roof[begin])[there]
    expected[rows[there]] = (floor * found.padding)[rows[there]] * longer
    return expected


@once_per_place
def _as_counted_ns(place: Place) -> Floats:
    """The same where the GPU's counters measured both: as many instructions, on tensor cores as busy as in aligned ones
    that last about as long; and no shorter than what it moves takes. NaN: unknown.
    """
    found, ns, names = misaligned_matmuls(place), place.kernel_ns.astype(float), place.kernels.name
    busy, moving = (of_names(place, names, column) for column in ("tensor_active_share", "dram_share"))
    others = ~found.rows & half_products(place) & on_tensor_cores(place)
    expected = np.full(ns.size, np.nan)
    for code in np.unique(names.codes[found.rows & ~found.without & (busy > 0)]):
        rows = np.flatnonzero(names.codes == code)
        usual = np.median(ns[rows])
        alike = others & (ns >= usual / _ALIKE) & (ns <= usual * _ALIKE)
        share = busy[rows[0]] / weighted_mean(busy[alike], ns[alike])  # NaN without any
        expected[rows] = ns[rows] * np.minimum(np.fmax(share, moving[rows]), 1.0)
    return expected * found.padding


def _gains(place: Place, at: Mapping[str, float], level: str) -> Floats:
    """How many times as fast each kernel gets, by published measurements: by what it loads at once.

    Aligned kernels of a Hopper GPU use matrix instructions that have no misaligned form.
    """
    alignment = place.kernels.name.numbers(kernel_names.alignment)
    paired = (alignment > 1) & ~misaligned_matmuls(place).without
    gains = np.where(paired, at[f"paired_speedup_{level}"], at[f"aligned_speedup_{level}"])
    if place.info.compute_capability == _HOPPER and level == "likely":
        gains = gains / at["plain_instructions_share"]
    return np.where(misaligned_matmuls(place).without, at[f"tensor_core_speedup_{level}"], gains)


def _left_ns(place: Place, at: Mapping[str, float], level: str) -> Floats:
    """What each kernel takes with its sizes padded. The recording's own aligned kernels say more than other machines'.

    None gets faster than its FLOP and bytes allow on this GPU, unless it is already: then these are not its own.
    For the most that may be saved these go by the data sheet, else by what was measured on this machine, if it was.
    """
    ns, floor = place.kernel_ns.astype(float), least_ns(place, at_best=level == "high")
    published = ns * misaligned_matmuls(place).padding / _gains(place, at, level)
    here = _as_aligned_ns(place)
    here = np.where(np.isnan(here), _as_counted_ns(place), here)
    both = {"low": np.fmax(published, here), "high": np.fmin(published, here)}
    left = both.get(level, np.where(np.isnan(here), published, here))
    at_least: Floats = np.maximum(left, np.where(floor < ns, floor, 0))
    return at_least


def _saved_ns(place: Place, at: Mapping[str, float], level: str) -> float:
    """Ns of the window that padded sizes save."""
    rows = misaligned_matmuls(place).rows
    saved = float(np.maximum(place.kernel_ns - _left_ns(place, at, level), 0)[rows].sum())
    return saved_alone_ns(place, rows, saved)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find these products by their kernels' names; the op's shapes say which size it is."""
    found = of_kernels(run, lambda place: misaligned_matmuls(place).rows, at["min_share_of_step"])
    if found is None:
        return
    table, odd = _by_size(found.worst, misaligned_matmuls(found.worst), at["min_named_share"])
    yield found.finding(
        rule="misaligned-matmuls",
        saving=saving_in_cases(run, lambda place, case: _saved_ns(place, at, case)),
        confidence="high" if odd else "medium",
        values={
            **found.time_values("misaligned"),
            "size": odd[0] if odd else 0,
            "padded": odd[1] if odd else 0,
            "piece": odd[2] if odd else 0,
        },
        evidence=(
            Measure("matmul kernels that misaligned sizes slow down", found.ns, "ns"),
            *tensor_evidence(found.worst, found.worst_rows),
            table or largest(found.worst, found.worst_rows, "Largest of them, a step"),
        ),
        situation="sizes" if odd else "",
        symptom_of=("unfused-attention",) if _share_of_attention(found.worst, at) > MOST_OF_IT else (),
    )


def _share_of_attention(place: Place, at: Mapping[str, float]) -> float:
    """Of their time, that of an attention's own products: fused, no scores are in memory that could be misaligned."""
    rows = misaligned_matmuls(place).rows
    inside = rows & (attentions(place, at["max_kernels_between_products"]).number != UNKNOWN)
    return float(place.kernel_ns[inside].sum() / max(place.kernel_ns[rows].sum(), 1))


def _by_size(place: Place, found: Misaligned, min_share: float) -> tuple[Rows | None, tuple[int, int, int] | None]:
    """The sizes that cost most, and of the first the size to pad: what it is, its next multiple, and of what.

    None where ops with known sizes explain less than `min_share` of the time: others may cost more.
    """
    odd = [each for each in found.sizes if any(size % each.piece for size in each.dimensions)]
    if not odd or sum(each.total_ns for each in odd) < min_share * place.kernel_ns[found.rows].sum():
        return None, None
    rows = tuple(
        (
            each.op,
            " × ".join(map(str, each.dimensions)),
            " × ".join(str(padded(size, each.piece)) for size in each.dimensions),
            each.count / place.units,
            int(each.total_ns / place.units),
        )
        for each in odd[:_TABLE_ROWS]
    )
    table = Rows(
        "Sizes that cost most, a step",
        ("op", "sizes (M × N × K, or channels)", "padded", "count", "time"),
        ("text", "text", "text", "count", "ns"),
        rows,
    )
    # The rows of the first factor (M) are the batch more often than not: name another size where one is odd.
    first, *others = odd[0].dimensions
    size = next(size for size in (*others, first) if size % odd[0].piece)
    return table, (size, padded(size, odd[0].piece), odd[0].piece)
