"""Which work runs how near to what the GPU's arithmetic and its memory allow?

The roofline (Williams, Waterman, Patterson: CACM 52(4), 2009): with I = FLOP ÷ bytes moved, at most
min(peak, I · bandwidth) can be reached. Bytes here are those of inputs and results, each once. A kernel moves no fewer,
so the roof is no lower than the real one, and the share of it that was reached no higher than the real share.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from perfdoctor.hardware.peaks import DATA_TYPES, Peaks
from perfdoctor.metrics.counters.kinds import of_names
from perfdoctor.metrics.grouping import combined, weighted_mean
from perfdoctor.metrics.kernels import memory_bandwidth
from perfdoctor.metrics.work import flops_attention, flops_convolution
from perfdoctor.metrics.work.device_peaks import attained
from perfdoctor.metrics.work.device_peaks import peaks as peaks_of_place
from perfdoctor.metrics.work.op_work import OpWork, op_work
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Floats, Ints
from perfdoctor.records.work_done import Ceiling, Roofline, RooflineRow
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES

#: Rows of a kind: what is further down took too little time to matter.
_MOST_ROWS = 20


def roofline(place: Place, work: OpWork, peaks: Peaks | None) -> Roofline:
    """The roofline of one place. Rows with nothing but a time are left out."""
    return Roofline(
        rank=place.rank,
        device=place.device or 0,
        gpu=peaks.name if peaks else "",
        memory_bytes_per_second=peaks.memory_bytes_per_second if peaks else 0.0,
        ceilings=tuple(
            Ceiling(each, peaks.matmul_flop_per_second(each), peaks.ridge_flop_per_byte(each))
            for each in DATA_TYPES
            if peaks and peaks.matmul_flop_per_second(each)
        ),
        rows=(*_families(place, work, peaks), *_ops(place, work, peaks), *_memory(place, peaks)),
    )


def roof(peaks: Peaks | None, data_type: str, flop_per_byte: float | None) -> tuple[float | None, str]:
    """The FLOP/s that are allowed, and which roof it is; None where the peak of the type is not known."""
    peak = peaks.matmul_flop_per_second(data_type) if peaks and data_type else 0.0
    if not peaks or not peak:
        return None, ""
    under_memory = flop_per_byte * peaks.memory_bytes_per_second if flop_per_byte else 0.0
    return (under_memory, "memory") if 0 < under_memory < peak else (peak, "compute")


@once_per_place
def least_ns(place: Place, at_best: bool = False) -> Floats:
    """How long each row of `place.kernels` takes at the least, by FLOP and bytes of its op and the GPU; 0: not known.

    `at_best`: by the data sheet even where the machine reached less when it was measured. Kernels of one op share what
    it takes by their times.
    """
    reached = _least_ns(place, attained(place))
    return np.minimum(reached, _least_ns(place, peaks_of_place(place))) if at_best else reached


def _least_ns(place: Place, limits: Peaks | None) -> Floats:
    work = op_work(place)
    at_least = np.zeros(len(place.kernels))
    if limits is None or not len(work.ops):
        return at_least
    types, which = np.unique(work.data_types, return_inverse=True)
    rates = [limits.matmul_flop_per_second(str(each)) if each else 0.0 for each in types]
    peak = np.array(rates)[which.ravel()]
    known = work.known & (work.needed_flop > 0) & (work.ns > 0) & (peak > 0)
    seconds = work.needed_flop[known] / peak[known]
    if limits.memory_bytes_per_second:
        seconds = np.fmax(seconds, work.moved_bytes[known] / limits.memory_bytes_per_second)  # NaN: not known
    part = np.zeros(len(work.ops))
    part[known] = seconds * 1e9 / work.ns[known]
    linked = work.kernel_op != UNKNOWN
    at_least[linked] = part[work.kernel_op[linked]] * place.kernel_ns[linked]
    return at_least


def _ops(place: Place, work: OpWork, peaks: Peaks | None) -> Iterator[RooflineRow]:
    """One row a different op, shapes and data type."""
    counted = np.flatnonzero(work.known & (work.ns > 0))
    shapes = work.ops.text("input_shapes")
    _, type_codes = np.unique(work.data_types, return_inverse=True)
    group, _ = combined(work.ops.name.codes[counted], shapes.codes[counted], type_codes[counted])
    for each in np.argsort(-np.bincount(group, weights=work.ns[counted]), kind="stable")[:_MOST_ROWS].tolist():
        members = counted[group == each]
        first = int(members[0])
        yield _row(place, work, peaks, members, "op", work.ops.name[first], _sizes(shapes[first]))


def _families(place: Place, work: OpWork, peaks: Peaks | None) -> Iterator[RooflineRow]:
    """One row a family of matmuls and data type."""
    linked = work.kernel_op != UNKNOWN
    counted = np.zeros(len(place.kernels), dtype=bool)
    counted[linked] = work.known[work.kernel_op[linked]]
    families = work.ops.name.mapped(_family)
    for family in MATMUL_FAMILIES:
        of_family = np.flatnonzero(work.known & (work.ns > 0) & families.equals(family))
        unknown_ns = int(place.kernel_ns[place.kernel_rows(family) & ~counted].sum())
        for data_type in sorted(set(work.data_types[of_family].tolist())):
            members = of_family[work.data_types[of_family] == data_type]
            yield _row(place, work, peaks, members, "family", family, "", unknown_ns)
            unknown_ns = 0  # which type it is of is not known either: said once


def _family(op: str) -> str:
    if flops_convolution.is_convolution(op):
        return "convolution"
    return "attention" if flops_attention.is_attention(op) else "gemm"


def _row(
    place: Place,
    work: OpWork,
    peaks: Peaks | None,
    members: Ints,
    kind: str,
    name: str,
    sizes: str,
    unknown_ns: int = 0,
) -> RooflineRow:
    """One row for these ops together; a sum in which one is not known is not known."""
    ns, flop = float(work.ns[members].sum()), float(work.needed_flop[members].sum())
    moved = float(work.moved_bytes[members].sum())
    data_type = str(work.data_types[members[0]])
    intensity = flop / moved if moved > 0 else None
    rate = flop / ns * 1e9 if not np.isnan(flop) and ns else None
    allowed, limit = roof(peaks, data_type, intensity)
    longest = members[work.ns[members].argmax()]
    kernel = place.kernels.name[int(work.main_kernel[longest])] if work.main_kernel[longest] != UNKNOWN else ""
    return RooflineRow(
        kind=kind,  # type: ignore[arg-type]
        name=name,
        sizes=sizes,
        kernel=kernel,
        data_type=data_type,
        count=members.size / place.units,
        ns=ns / place.units,
        flop=_or_none(flop / place.units),
        moved_bytes=_or_none(moved / place.units),
        flop_per_second=rate,
        flop_per_byte=_or_none(intensity),
        roof_flop_per_second=allowed if rate is not None else None,
        share_of_roof=rate / allowed if rate is not None and allowed else None,
        limit=limit if rate is not None else "",  # type: ignore[arg-type]
        unknown_ns=unknown_ns / place.units,
        counted_bytes_per_second=_counted(place, work.main_kernel[members], work.ns[members], peaks),
    )


def _counted(place: Place, kernels: Ints, ns: Floats | Ints, peaks: Peaks | None) -> float | None:
    """Bytes a second that the counters saw in these rows of `place.kernels`, each weighing its time; None: unknown."""
    shares = np.append(_dram_share(place), np.nan)[kernels]  # UNKNOWN is the last
    return _or_none(weighted_mean(shares, ns) * peaks.memory_bytes_per_second) if peaks else None


@once_per_place
def _dram_share(place: Place) -> Floats:
    return of_names(place, place.kernels.name, "dram_share")


def _or_none(number: float | None) -> float | None:
    return None if number is None or np.isnan(number) else number


def _memory(place: Place, peaks: Peaks | None) -> Iterator[RooflineRow]:
    """Kernels that only pass over their numbers, by name: bytes and no FLOP. By shapes, or as the counters saw them."""
    moved = memory_bandwidth.moved_by_kernel(place)
    passing = place.kernel_rows(*memory_bandwidth.FAMILIES, "optimizer") & (peaks is not None)
    by_counters = (np.nan_to_num(_dram_share(place)) > 0) & passing
    rows = np.flatnonzero((moved > 0) | by_counters)
    names, bandwidth = place.kernels.name, peaks.memory_bytes_per_second if peaks else 0.0
    total = np.bincount(names.codes[rows], weights=place.kernel_ns[rows], minlength=len(names.values))
    for code in np.argsort(-total, kind="stable")[:_MOST_ROWS].tolist():
        if not total[code]:
            return
        members = rows[names.codes[rows] == code]
        ns, passed = float(place.kernel_ns[members].sum()), float(moved[members].sum())
        measured = _counted(place, members, place.kernel_ns[members], peaks)
        rate = measured or passed / ns * 1e9
        share = rate / bandwidth if bandwidth else None
        if share is not None and not measured and share > memory_bandwidth.MOST_OF_PEAK:
            share = None  # of what came from a cache nothing is known
        yield RooflineRow(
            kind="memory",
            name=names.values[code],
            sizes="",
            kernel=names.values[code],
            data_type="",
            count=members.size / place.units,
            ns=ns / place.units,
            flop=None,
            moved_bytes=passed / place.units or None,
            flop_per_second=None,
            flop_per_byte=None,
            roof_flop_per_second=None,
            share_of_roof=share,
            limit="memory" if share is not None else "",
            counted_bytes_per_second=measured,
        )


def _sizes(shapes: str) -> str:
    """`32 × 128, 128 × 64`: the tensors that were multiplied."""
    try:
        listed = [shape for shape in json.loads(shapes) if isinstance(shape, list) and len(shape) > 1]
    except (ValueError, TypeError):
        return ""
    return ", ".join(" × ".join(str(side) for side in shape) for shape in listed[:3])
