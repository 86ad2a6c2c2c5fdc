"""How is a roofline drawn, and what is shown of the kernels that Nsight Compute measured under it?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from perfdoctor.hardware.peaks import peaks_of
from perfdoctor.metrics.kernels.kernel_limits import MeasuredKernel, measured_kernels
from perfdoctor.model.timeline import Timeline
from perfdoctor.records.views import Axis, Chart, Series, Table
from perfdoctor.views.tables import numbers, table, text
from perfdoctor.vocabulary.kinds import KERNEL_LIMITS, stall_label

_X = Axis("arithmetic intensity, FLOP per byte", "flop_per_byte", logarithmic=True)
FLOP_RATE = Axis("FLOP/s", "flop_per_second", logarithmic=True)
#: Further measured kernels take too little time to matter.
_MOST_MEASURED = 60


def guides(
    ceilings: Sequence[tuple[str, float]], memory_bytes_per_second: float, dots: Sequence[Series]
) -> Iterator[Series]:
    """Draw the memory bandwidth up to the highest of the `ceilings`, and each ceiling from its ridge point on."""
    if not ceilings or not memory_bytes_per_second:
        return
    ridges = [rate / memory_bytes_per_second for _, rate in ceilings]
    places = np.concatenate([np.array(ridges), *(each.x for each in dots)])
    low = 10.0 ** math.floor(math.log10(float(places.min())) - 1e-9)
    high = 10.0 ** math.ceil(math.log10(float(places.max())) + 1e-9)
    slope = np.array([low, max(ridges)])
    yield Series("memory", "guide", slope, slope * memory_bytes_per_second)
    for (name, rate), ridge in zip(ceilings, ridges, strict=True):
        yield Series(name, "guide", np.array([ridge, high]), np.array([rate, rate]))


def measured(timeline: Timeline) -> Iterator[Chart | Table]:
    """The kernels that were measured: a chart of those whose place is known, and a table of all."""
    kernels = [each for each in measured_kernels(timeline) if each.ns or each.limit != "unknown"]
    drawn = [each for each in kernels if _has_place(each)][:_MOST_MEASURED]
    if drawn:
        yield _measured_chart(drawn)
    yield from _measured_table(kernels)


def _has_place(kernel: MeasuredKernel) -> bool:
    """Are its FLOP, those of tensor cores too, its bytes and its time known?"""
    return kernel.all_flop > 0 and kernel.dram_bytes > 0 and kernel.ns > 0


def _measured_chart(kernels: Sequence[MeasuredKernel]) -> Chart:
    x = np.array([kernel.flop_per_byte for kernel in kernels])
    y = np.array([kernel.flop_per_second for kernel in kernels])
    weight = np.array([kernel.ns for kernel in kernels]) / kernels[0].ns
    dots = Series("measured kernels", "dots", x, y, tuple(kernel.name for kernel in kernels), weight)
    peak, flop_per_second, bytes_per_second, whose = _roof(kernels)
    roofs = [(peak, flop_per_second)] if flop_per_second else []
    roof = guides([*roofs, *_tensor_roofs(kernels)] if roofs else [], bytes_per_second, [dots])
    return Chart(
        "roofline", "roofline-measured", "Roofline of the kernels measured by Nsight Compute",
        "The longest kernel, {name}, reaches {rate} at {intensity}. FLOP and bytes of DRAM are those measured; kernels"
        f" whose FLOP on tensor cores were not counted are omitted.{whose}",
        _X, FLOP_RATE, (*roof, dots),
        {"name": (kernels[0].name, "text"), "rate": (float(y[0]), "flop_per_second"),
         "intensity": (float(x[0]), "flop_per_byte")},
    )  # fmt: skip


def _roof(kernels: Sequence[MeasuredKernel]) -> tuple[str, float, float, str]:
    """What the peak is called, FLOP/s and bytes/s of the roof, 0 where unknown, and a sentence on whose it is."""
    names = {kernel.gpu for kernel in kernels}
    if len(names) > 1:
        return "", 0.0, 0.0, ""
    computed, moved = (
        float(np.nanmax([0.0, *(kernel.means[column] for kernel in kernels)]))
        for column in ("peak_flop_per_second", "peak_dram_bytes_per_second")
    )
    if computed and moved:
        return "peak", computed, moved, " The roof is the report's own, at the clocks of the measurement."
    published = peaks_of(names.pop())
    if published is None:
        return "", 0.0, 0.0, ""
    computed, moved = published.flop_per_second.get("fp32", 0.0), published.memory_bytes_per_second
    return "fp32", computed, moved, " The roof is the data sheet's, at the GPU's highest clocks."


def _tensor_roofs(kernels: Sequence[MeasuredKernel]) -> Iterator[tuple[str, float]]:
    """The peak of tensor cores for each type in which they computed most of a kernel, where it is known."""
    roofs = {kernel.tensor_type: kernel.peak_flop_per_second for kernel in kernels if kernel.tensor_flop > kernel.flop}
    return ((f"tensor cores, {kind}", peak) for kind, peak in roofs.items() if kind and not math.isnan(peak))


def _measured_table(kernels: Sequence[MeasuredKernel]) -> Iterable[Table]:
    def each(field: str) -> list[Any]:
        return [getattr(kernel, field) for kernel in kernels]

    def means(column: str) -> list[float]:
        return [kernel.means[column] for kernel in kernels]

    columns = [
        text("kernel", each("name")),
        numbers("launches", "count", each("launches"), adds_up=True),
        numbers("time", "ns", each("ns"), adds_up=True),
        numbers("of the measured time", "share", each("share"), adds_up=True),
        text("limit", map(_limit, kernels), "The unit that is busy, or what keeps all of them idle."),
        text("shorter with", [KERNEL_LIMITS[kernel.limit].moved for kernel in kernels]),
        numbers("share of roof", "share", each("share_of_roof"), "The larger of its shares of both peaks."),
        numbers("SMs", "share", means("sm_share"), "Of the peak of their busiest pipe."),
        numbers("tensor cores", "share", means("tensor_share")),
        numbers("memory", "share", means("memory_share"), "The busiest of DRAM and caches."),
        numbers("DRAM", "share", means("dram_share")),
        numbers("L2", "share", means("l2_share")),
        numbers("L1", "share", means("l1_share")),
        numbers("warps", "share", means("occupancy_share"), "Achieved occupancy."),
        numbers("unnecessary sectors", "share", means("excess_sector_share"), "Of those requested from L2."),
        text("warps wait for", map(stall_label, each("stall")), "Most of all."),
        numbers("blocks", "count", each("blocks")),
        numbers("threads a block", "count", each("threads_per_block")),
        numbers("waves", "number", means("waves_per_sm"), "How often the grid fills all SMs."),
        numbers("FLOP", "flop", each("flop"), "Of the fp32 and fp64 units."),
        numbers("FLOP of tensor cores", "flop", each("tensor_flop")),
        *([text("type", each("tensor_type"), "Of most inputs of tensor cores.")] if any(each("tensor_type")) else []),
        numbers("moved", "bytes", each("dram_bytes"), "DRAM reads and writes."),
        numbers("FLOP a byte", "flop_per_byte", each("flop_per_byte"), "Arithmetic intensity."),
        numbers("rate", "flop_per_second", each("flop_per_second")),
        numbers("peak rate", "flop_per_second", each("peak_flop_per_second"), "Of the units that computed most."),
        numbers("bandwidth", "bytes_per_second", each("bytes_per_second")),
        numbers("peak bandwidth", "bytes_per_second", means("peak_dram_bytes_per_second")),
    ]
    explained = "A row a kernel and size, longest first. Nsight Compute runs each launch alone, with cold caches."
    yield from table("roofline", "roofline-measured", "Kernels measured by Nsight Compute", explained, columns)


def _limit(kernel: MeasuredKernel) -> str:
    """`the memory bandwidth, at its limit`"""
    return f"{KERNEL_LIMITS[kernel.limit].label}{', at its limit' if kernel.is_at_limit else ''}"
