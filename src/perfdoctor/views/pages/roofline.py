"""The page `roofline`: how near does the work run to what the GPU's arithmetic and its memory allow?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.hardware.peaks import Peaks, peaks_of
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Axis, Chart, Series, Table, TableColumn, Unit
from perfdoctor.records.work_done import Efficiency, Roofline, RooflineRow
from perfdoctor.views.places import place_names

_X = Axis("FLOP for each byte moved, at the most", "flop_per_byte", logarithmic=True)
_X_MEASURED = Axis("FLOP for each byte moved", "flop_per_byte", logarithmic=True)
_Y = Axis("FLOP a second", "flop_per_second", logarithmic=True)
_KINDS = {"family": "all of a family", "op": "single ops", "memory": "kernels that only pass over memory"}
_SHORT_KINDS = {"family": "family", "op": "op", "memory": "pass"}
#: Measured kernels beyond these took too little time to matter.
_MOST_MEASURED = 60


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table | Chart]:
    efficiency = diagnosis.efficiency
    if efficiency is not None:
        yield from _efficiency(efficiency, diagnosis.per_step)
        if efficiency.roofline is not None and efficiency.roofline.rows:
            whose = _whose(run, efficiency.roofline)
            yield from _chart(efficiency.roofline, whose, diagnosis.per_step)
            yield _table(efficiency.roofline, whose, diagnosis.per_step)
    yield from _measured(run.timeline)


# --- from the shapes of ops -------------------------------------------------------------------------------------------


def _chart(roofline: Roofline, whose: str, per_step: bool) -> Iterator[Chart]:
    """Of the rows that have both FLOP and bytes; a picture without any is none."""
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
    told, numbers = _told(rows, roofline, per_step)
    yield Chart(
        "roofline", "roofline", f"Roofline of {whose}", told, _X, _Y,
        (*_guides(ceilings, roofline.memory_bytes_per_second, dots), *dots), numbers,
    )  # fmt: skip


def _told(
    rows: Sequence[RooflineRow], roofline: Roofline, per_step: bool
) -> tuple[str, dict[str, tuple[float | str, Unit]]]:
    longest = max((row for row in rows if row.kind != "family"), key=lambda row: row.ns, default=rows[0])
    begin = "Most" if longest.kind == "family" else "Of single ops most"
    when = "a step" if per_step else "in the window"
    told = f"{begin} time goes to {{name}}, {{time}} {when}: it reaches {{rate}}"
    numbers: dict[str, tuple[float | str, Unit]] = {
        "name": (f"{longest.name} {longest.data_type}".strip(), "text"),
        "time": (longest.ns, "ns"),
        "rate": (longest.flop_per_second or 0.0, "flop_per_second"),
    }
    if longest.share_of_roof is not None:
        told += ", {share} of what {limit} allows"
        numbers["share"] = longest.share_of_roof, "share"
        numbers["limit"] = ("the memory" if longest.limit == "memory" else "the arithmetic"), "text"
    told += ". The larger a dot, the more time. Bytes are those of inputs and results, each once"
    if not roofline.ceilings:
        told += ". What this device can do is not known here: no roof is drawn"
    return f"{told}.", numbers


def _guides(
    ceilings: Sequence[tuple[str, float]], memory_bytes_per_second: float, dots: Sequence[Series]
) -> Iterator[Series]:
    """The slope of the memory up to the highest ceiling, and each ceiling from the slope on, to whole powers."""
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


def _whose(run: Run, roofline: Roofline) -> str:
    names = dict(zip(((place.rank, place.device or 0) for place in run.places), place_names(run.places), strict=True))
    return names.get((roofline.rank, roofline.device), f"rank {roofline.rank}")


def _table(roofline: Roofline, whose: str, per_step: bool) -> Table:
    rows = sorted(roofline.rows, key=lambda row: -row.ns)
    time = "time a step" if per_step else "time"
    columns: list[tuple[str, Unit, Sequence[float | str | None], str]] = [
        ("name", "text", [row.name.removeprefix("void ") for row in rows], ""),
        ("kind", "text", [_SHORT_KINDS[row.kind] for row in rows], "A pass is a kernel that only passes over memory."),
        ("sizes", "text", [row.sizes for row in rows], "The tensors that were multiplied."),
        ("type", "text", [row.data_type for row in rows], "What the product reads."),
        ("times a step" if per_step else "times", "number", [row.count for row in rows], ""),
        (time, "ns", [row.ns for row in rows], ""),
        ("FLOP", "flop", [row.flop for row in rows], "Needed; without what a causal mask spares."),
        ("moved", "bytes", [row.moved_bytes for row in rows], "At the least: each input and each result once."),
        ("FLOP a byte", "flop_per_byte", [row.flop_per_byte for row in rows], ""),
        ("reached", "flop_per_second", [row.flop_per_second for row in rows], ""),
        ("roof", "flop_per_second", [row.roof_flop_per_second for row in rows], "What the roofline allows."),
        ("share of roof", "share", [row.share_of_roof for row in rows], "At the least."),
        ("limit", "text", [row.limit for row in rows], "Which of the two roofs is above it."),
        ("nothing known of", "ns", [row.unknown_ns or None for row in rows], "Kernels of the family."),
        ("longest kernel", "text", [row.kernel if row.kernel != row.name else "" for row in rows], ""),
    ]
    told = [TableColumn(*each) for each in columns if any(value not in (None, "") for value in each[2])]
    explained = "From the sizes of tensors that the recording tells; FLOP and bytes are those of a step."
    return Table("roofline", "roofline", f"Work of {whose} under the roof", tuple(told), len(rows), explained)


def _efficiency(known: Efficiency, per_step: bool) -> Iterator[Table]:
    """One row: only what is known."""
    unit, each = "a step" if per_step else "in the window", "GPU" if known.on_gpu else "rank"
    columns: list[tuple[str, Unit, float | str | None, str]] = [
        ("MFU", "share", known.mfu, "Model FLOP as a share of what the GPU could have computed meanwhile."),
        ("HFU", "share", known.hfu, "The same with what was computed a second time."),
        ("peak", "flop_per_second", known.peak_flop_per_second, "Dense."),
        ("type", "text", known.data_type or None, "In which most was computed."),
        (f"FLOP {unit}", "flop", known.flop_per_step, "Of matrix products, convolutions and fused attention."),
        ("of the model", "flop", known.model_flop_per_step, ""),
        ("recomputed", "flop", known.recomputed_flop_per_step or None, "Forward work done again."),
        ("known share", "share", known.known_share if known.flop_per_step and known.on_gpu else None,
         "Of the time of kernels that multiply matrices: below 1 the rest of this row is “at least”."),
        (f"{known.items} a second", "number", known.items_per_second, f"On each {each}."),
    ]  # fmt: skip
    told = tuple(TableColumn(name, kind, [value], said) for name, kind, value, said in columns if value is not None)
    title = "Use of the GPU's arithmetic, mean of all GPUs" if known.on_gpu else "What is computed, mean of all ranks"
    if any(column.unit in ("flop", "share", "number") for column in told):
        yield Table("roofline", "efficiency", title, told, 1)


# --- as Nsight Compute measured it ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kernel:
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
    peaks = _only_gpu(found)
    ceilings = [("fp32", peaks.flop_per_second.get("fp32", 0.0))] if peaks else []
    known = [each for each in ceilings if each[1]]
    guides = list(_guides(known, peaks.memory_bytes_per_second if peaks else 0.0, [dots]))
    yield Chart(
        "roofline", "roofline-measured", "Roofline of the kernels that Nsight Compute measured",
        "The longest, {name}, reaches {rate} at {intensity}. Counted are operations of the fp32 and fp64 units, and the"
        " bytes that really passed to and from the memory; kernels that use tensor cores are left out.",
        _X_MEASURED, _Y, (*guides, dots),
        {"name": (found[0].name, "text"), "rate": (float(y[0]), "flop_per_second"),
         "intensity": (float(x[0]), "flop_per_byte")},
    )  # fmt: skip
    yield Table(
        "roofline", "roofline-measured", "Kernels as Nsight Compute measured them",
        (
            TableColumn("kernel", "text", [kernel.name for kernel in found]),
            TableColumn("launches", "count", [kernel.launches for kernel in found]),
            TableColumn("time", "ns", [kernel.ns for kernel in found]),
            TableColumn("FLOP", "flop", [kernel.flop for kernel in found], "Of the fp32 and fp64 units."),
            TableColumn("moved", "bytes", [kernel.moved_bytes for kernel in found], "To and from the memory."),
            TableColumn("FLOP a byte", "flop_per_byte", x.tolist()),
            TableColumn("reached", "flop_per_second", y.tolist()),
        ),
        len(found),
    )  # fmt: skip


def _kernels(profiles: Frame) -> Iterator[_Kernel]:
    """By name, of launches of which FLOP, bytes and time were measured and that left the tensor cores alone."""
    flop, moved, ns = (profiles.floats(column) for column in ("flop", "dram_bytes", "gpu_time_ns"))
    with np.errstate(invalid="ignore"):
        known = (flop > 0) & (moved > 0) & (ns > 0) & ~(profiles.floats("tensor_share") > 0)
    for name in dict.fromkeys(profiles.name.take(known)):
        rows = known & profiles.name.equals(name)
        sums = (float(each[rows].sum()) for each in (ns, flop, moved))
        yield _Kernel(name, profiles.text("gpu")[int(np.flatnonzero(rows)[0])], int(rows.sum()), *sums)


def _only_gpu(found: Sequence[_Kernel]) -> Peaks | None:
    names = {kernel.gpu for kernel in found}
    return peaks_of(next(iter(names))) if len(names) == 1 else None
