"""Matrix multiplications whose sizes keep tensor cores from being fed in whole pieces of 16 bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.metrics.kernels.matmul_sizes import Misaligned, misaligned_matmuls, padded
from perfdoctor.metrics.kernels.profiles import tensor_evidence
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.work.roofline import least_ns
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Floats
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.records.savings import Saving

#: How many sizes the table names.
_TABLE_ROWS = 5


@once_per_place
def _misaligned(place: Place) -> Misaligned:
    return misaligned_matmuls(place)


@once_per_place
def _floor_ns(place: Place, level: str) -> Floats:
    """What each kernel takes at least, by its FLOP and bytes on this GPU; 0 where they are not known.

    The most that may be saved goes by the data sheet, the rest by what was measured on this machine, if it was.
    """
    return least_ns(place, at_best=level == "high")


def _saved_ns(place: Place, gains: tuple[float, float], level: str) -> float:
    """Kernels get faster by the first gain, those without tensor cores by the second, and compute the padding too.

    None gets faster than its FLOP and bytes allow on this GPU, where they are known.
    """
    found = _misaligned(place)
    ns, gain = place.kernel_ns[found.rows], np.where(found.without[found.rows], gains[1], gains[0])
    summed = int(ns.sum())
    if not summed:
        return 0.0
    left = np.maximum(ns * found.padding[found.rows] / gain, _floor_ns(place, level)[found.rows])
    saved = float(np.maximum(ns - left, 0).sum())
    return saved * place.alone_ns(found.rows) / summed


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Proven by the kernel's name; the op's shapes say which size it is."""
    found = of_kernels(run, lambda place: _misaligned(place).rows, at["min_share_of_step"])
    if found is None:
        return

    def saved(level: str) -> int:
        gains = (at[f"aligned_speedup_{level}"], at[f"tensor_core_speedup_{level}"])
        return run.mean(lambda place: _saved_ns(place, gains, level))

    table, odd = _by_size(found.worst, _misaligned(found.worst), at["min_named_share"])
    yield found.finding(
        rule="misaligned-matmuls",
        saving=Saving(saved("low"), saved("likely"), saved("high")),
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
    )


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
