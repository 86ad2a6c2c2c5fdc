"""The page `roofline`: how close is the work to the GPU's peak FLOP/s and memory bandwidth?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Axis, Chart, Series, Table, TableColumn, Unit
from perfdoctor.records.work_done import Efficiency, Roofline, RooflineRow
from perfdoctor.views.rooflines import FLOP_RATE, guides, measured
from perfdoctor.views.tables import place_names
from perfdoctor.vocabulary.basis import Basis

_X = Axis("arithmetic intensity (upper bound), FLOP per byte", "flop_per_byte", logarithmic=True)
_KINDS = {"family": "kernel families", "op": "single ops", "memory": "memory-bound kernels"}
_SHORT_KINDS = {"family": "family", "op": "op", "memory": "memory-bound"}


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
    yield from measured(run.timeline)


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
            np.array([row.measured_flop_per_byte or row.flop_per_byte for row in own], np.float64),
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
        "roofline", "roofline", f"Roofline of {whose}", description, _X, FLOP_RATE,
        (*guides(ceilings, roofline.memory_bytes_per_second, dots), *dots), numbers,
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
    if any(row.measured_flop_per_byte for row in rows):
        description += ", or what the GPU's counters saw the memory move, where they did"
    if not roofline.ceilings:
        description += ". The peaks of this device are unknown: no roof is drawn"
    return f"{description}.", numbers


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
        ("measured bandwidth", "bytes_per_second", [row.counted_bytes_per_second for row in rows],
         "By the GPU's counters, while its kernels ran; what a cache gives is not in it."),
        ("measured FLOP a byte", "flop_per_byte", [row.measured_flop_per_byte for row in rows],
         "Of the bytes that the memory moved."),
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
