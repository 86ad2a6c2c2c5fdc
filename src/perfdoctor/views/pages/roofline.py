"""The page `roofline`: how close is the work to the GPU's peak FLOP/s and memory bandwidth?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.hardware.peaks import peaks_of
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Axis, Chart, Series, Table, TableColumn, Unit
from perfdoctor.records.work_done import Efficiency, Roofline, RooflineRow
from perfdoctor.views.tables import place_names
from perfdoctor.vocabulary.basis import Basis

_X = Axis("arithmetic intensity (upper bound), FLOP per byte", "flop_per_byte", logarithmic=True)
_X_MEASURED = Axis("arithmetic intensity, FLOP per byte", "flop_per_byte", logarithmic=True)
_Y = Axis("FLOP/s", "flop_per_second", logarithmic=True)
_KINDS = {"family": "kernel families", "op": "single ops", "memory": "memory-bound kernels"}
_SHORT_KINDS = {"family": "family", "op": "op", "memory": "memory-bound"}
#: Further measured kernels take too little time to matter.
_MOST_MEASURED = 60


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table | Chart]:
    efficiency = diagnosis.efficiency
    if efficiency is not None:
        yield from _efficiency(efficiency, diagnosis.basis)
        if efficiency.roofline is not None and efficiency.roofline.rows:
            roofline = efficiency.roofline
            names = dict(zip((place.rank_and_device for place in run.places), place_names(run.places), strict=True))
            whose = names.get((roofline.rank, roofline.device), f"rank {roofline.rank}")
            yield from _chart(roofline, whose, diagnosis.basis)
            yield _table(roofline, whose, diagnosis.basis)
    yield from _measured(run.timeline)


def _chart(roofline: Roofline, whose: str, basis: Basis) -> Iterator[Chart]:
    """Draw the rows of the roofline that have both FLOP and bytes; nothing if there are none."""
    rows = [row for row in roofline.rows if row.flop_per_byte and row.flop_per_second]
    if not rows:
        return
    most_ns = max(row.ns for row in rows)
    dots = [
        Series(
            _KINDS[kind],
            "dots",
            np.array([row.flop_per_byte for row in own], np.float64),
            np.array([row.flop_per_second for row in own], np.float64),
            tuple(", ".join(filter(None, (f"{row.name} {row.data_type}".strip(), row.sizes))) for row in own),
            np.array([row.ns / most_ns for row in own]),
        )
        for kind in _KINDS
        if (own := [row for row in rows if row.kind == kind])
    ]
    types = [each for each in roofline.ceilings if each.data_type in {row.data_type for row in rows}]
    ceilings = [(each.data_type, each.flop_per_second) for each in types or roofline.ceilings]
    description, numbers = _description(rows, roofline, basis)
    yield Chart(
        "roofline", "roofline", f"Roofline of {whose}", description, _X, _Y,
        (*_guides(ceilings, roofline.memory_bytes_per_second, dots), *dots), numbers,
    )  # fmt: skip


def _description(
    rows: Sequence[RooflineRow], roofline: Roofline, basis: Basis
) -> tuple[str, dict[str, tuple[float | str, Unit]]]:
    longest = max((row for row in rows if row.kind != "family"), key=lambda row: row.ns, default=rows[0])
    most = "Most" if longest.kind == "family" else "Of single ops, most"
    description = f"{most} time is spent in {{name}}, {{time}}{basis.each}, at {{rate}}"
    numbers: dict[str, tuple[float | str, Unit]] = {
        "name": (f"{longest.name} {longest.data_type}".strip(), "text"),
        "time": (longest.ns, "ns"),
        "rate": (longest.flop_per_second or 0.0, "flop_per_second"),
    }
    if longest.share_of_roof is not None:
        description += ", {share} of the roof ({limit})"
        numbers["share"] = longest.share_of_roof, "share"
        numbers["limit"] = ("memory bandwidth" if longest.limit == "memory" else "peak FLOP/s"), "text"
    description += ". The area of a dot is its time. Bytes are inputs and results, each counted once"
    if not roofline.ceilings:
        description += ". The peaks of this device are unknown: no roof is drawn"
    return f"{description}.", numbers


def _guides(
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


def _table(roofline: Roofline, whose: str, basis: Basis) -> Table:
    rows = sorted(roofline.rows, key=lambda row: -row.ns)
    time = f"time{basis.short}"
    columns: list[tuple[str, Unit, Sequence[float | str | None], str]] = [
        ("name", "text", [row.name.removeprefix("void ") for row in rows], ""),
        ("kind", "text", [_SHORT_KINDS[row.kind] for row in rows], "Family, op, or an op's memory-bound kernels."),
        ("sizes", "text", [row.sizes for row in rows], "Of the multiplied tensors."),
        ("type", "text", [row.data_type for row in rows], "Of the inputs."),
        (f"count{basis.short}", "number", [row.count for row in rows], ""),
        (time, "ns", [row.ns for row in rows], ""),
        ("FLOP", "flop", [row.flop for row in rows], "Without what a causal mask skips."),
        ("moved", "bytes", [row.moved_bytes for row in rows], "Lower bound: each input and each result once."),
        ("FLOP a byte", "flop_per_byte", [row.flop_per_byte for row in rows], "Arithmetic intensity."),
        ("rate", "flop_per_second", [row.flop_per_second for row in rows], ""),
        ("roof", "flop_per_second", [row.roof_flop_per_second for row in rows], "The limit at this intensity."),
        ("share of roof", "share", [row.share_of_roof for row in rows], "Lower bound."),
        ("limit", "text", [row.limit for row in rows], "Which of the two roofs applies."),
        ("unknown time", "ns", [row.unknown_ns or None for row in rows], "Of kernels without known FLOP and bytes."),
        ("longest kernel", "text", [row.kernel if row.kernel != row.name else "" for row in rows], ""),
    ]  # fmt: skip
    known = [TableColumn(*each) for each in columns if any(value not in (None, "") for value in each[2])]
    explained = "Computed from recorded tensor sizes; FLOP and bytes are per step."
    return Table("roofline", "roofline", f"Roofline of {whose} in numbers", tuple(known), len(rows), explained)


def _efficiency(known: Efficiency, basis: Basis) -> Iterator[Table]:
    """A table of one row, with the columns that are known."""
    each = "GPU" if known.on_gpu else "rank"
    columns: list[tuple[str, Unit, float | str | None, str]] = [
        ("MFU", "share", known.mfu, "Model FLOP ÷ (peak · step time)."),
        ("HFU", "share", known.hfu, "The same with recomputation."),
        ("peak", "flop_per_second", known.peak_flop_per_second, "Dense."),
        ("type", "text", known.data_type or None, "In which most was computed."),
        (f"FLOP{basis.short}", "flop", known.flop_per_step, "Of matmuls, convolutions and fused attention."),
        ("of the model", "flop", known.model_flop_per_step, ""),
        ("recomputed", "flop", known.recomputed_flop_per_step or None, "Forward work computed again."),
        ("known share", "share", known.known_share if known.flop_per_step and known.on_gpu else None,
         "Of the matmul time: below 1 the other numbers are lower bounds."),
        (f"{known.items} a second", "number", known.items_per_second, f"On each {each}."),
    ]  # fmt: skip
    shown = tuple(TableColumn(name, kind, [value], said) for name, kind, value, said in columns if value is not None)
    title = "Use of the peak, mean of all GPUs" if known.on_gpu else "Computed work, mean of all ranks"
    if any(column.unit in ("flop", "share", "number") for column in shown):
        yield Table("roofline", "efficiency", title, shown, 1)


class _Kernel(Struct, frozen=True):
    """All measured launches of one kernel."""

    name: str
    gpu: str
    launches: int
    ns: float
    flop: float
    moved_bytes: float


def _measured(timeline: Timeline) -> Iterator[Chart | Table]:
    found = sorted(_kernels(timeline["kernel_profiles"]), key=lambda kernel: -kernel.ns)[:_MOST_MEASURED]
    if not found:
        return
    x = np.array([kernel.flop / kernel.moved_bytes for kernel in found])
    y = np.array([kernel.flop / kernel.ns * 1e9 for kernel in found])
    weight = np.array([kernel.ns for kernel in found]) / found[0].ns
    dots = Series("measured kernels", "dots", x, y, tuple(kernel.name for kernel in found), weight)
    names = {kernel.gpu for kernel in found}
    peaks = peaks_of(names.pop()) if len(names) == 1 else None
    fp32 = peaks.flop_per_second.get("fp32", 0.0) if peaks else 0.0
    ceilings = [("fp32", fp32)] if fp32 else []
    guides = list(_guides(ceilings, peaks.memory_bytes_per_second if peaks else 0.0, [dots]))
    yield Chart(
        "roofline", "roofline-measured", "Roofline of the kernels measured by Nsight Compute",
        "The longest kernel, {name}, reaches {rate} at {intensity}. FLOP are those of the fp32 and fp64 units, bytes"
        " are measured DRAM traffic; kernels that use tensor cores are omitted.",
        _X_MEASURED, _Y, (*guides, dots),
        {"name": (found[0].name, "text"), "rate": (float(y[0]), "flop_per_second"),
         "intensity": (float(x[0]), "flop_per_byte")},
    )  # fmt: skip
    yield Table(
        "roofline", "roofline-measured", "Kernels measured by Nsight Compute",
        (
            TableColumn("kernel", "text", [kernel.name for kernel in found]),
            TableColumn("launches", "count", [kernel.launches for kernel in found]),
            TableColumn("time", "ns", [kernel.ns for kernel in found]),
            TableColumn("FLOP", "flop", [kernel.flop for kernel in found], "Of the fp32 and fp64 units."),
            TableColumn("moved", "bytes", [kernel.moved_bytes for kernel in found], "DRAM reads and writes."),
            TableColumn("FLOP a byte", "flop_per_byte", x.tolist(), "Arithmetic intensity."),
            TableColumn("rate", "flop_per_second", y.tolist()),
        ),
        len(found),
    )  # fmt: skip


def _kernels(profiles: Frame) -> Iterator[_Kernel]:
    """Kernels by name, of the launches with measured FLOP, bytes and time that did not use tensor cores."""
    flop, moved, ns = (profiles.floats(column) for column in ("flop", "dram_bytes", "gpu_time_ns"))
    with np.errstate(invalid="ignore"):
        known = (flop > 0) & (moved > 0) & (ns > 0) & ~(profiles.floats("tensor_share") > 0)
    for name in dict.fromkeys(profiles.name.take(known)):
        rows = known & profiles.name.equals(name)
        sums = (float(each[rows].sum()) for each in (ns, flop, moved))
        yield _Kernel(name, profiles.text("gpu")[int(np.flatnonzero(rows)[0])], int(rows.sum()), *sums)
