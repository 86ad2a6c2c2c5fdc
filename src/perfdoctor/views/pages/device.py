"""The page `device`: which clocks, power and utilization did the GPUs have while the training ran?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.machine.gpu_samples import HELD_BY, SampledGpu, gpus
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Axis, Chart, Series, Table, TableColumn, Unit
from perfdoctor.views.lines import lines

_MHZ = 1e6
_HELD_NAMES = {
    "heat": "throttled by temperature", "brake": "throttled by the power brake", "hardware": "throttled by hardware",
    "power": "throttled by the power limit", "clocks-set": "limited by set clocks",
}  # fmt: skip
#: Spans closer together than this share of the chart's width are drawn as one.
_SEEN_SHARE = 0.002


class _Quantity(Struct, frozen=True):
    """A column of the samples; multiplied by `factor`, its numbers are in `unit`."""

    column: str
    name: str
    unit: Unit
    factor: float = 1.0


_QUANTITIES = (
    _Quantity("sm_clock_mhz", "SM clock", "hertz", _MHZ),
    _Quantity("power_w", "power", "watt"),
    _Quantity("temperature_c", "temperature", "celsius"),
    _Quantity("utilization_share", "GPU utilization", "share"),
    _Quantity("sm_active_share", "SM activity", "share"),
    _Quantity("tensor_active_share", "tensor core activity", "share"),
    _Quantity("dram_active_share", "DRAM activity", "share"),
    _Quantity("memory_used_bytes", "memory used", "bytes"),
    _Quantity("memory_clock_mhz", "memory clock", "hertz", _MHZ),
    _Quantity("pcie_rx_bytes_per_second", "received over PCIe", "bytes_per_second"),
    _Quantity("pcie_tx_bytes_per_second", "sent over PCIe", "bytes_per_second"),
    _Quantity("nvlink_rx_bytes_per_second", "received over NVLink", "bytes_per_second"),
    _Quantity("nvlink_tx_bytes_per_second", "sent over NVLink", "bytes_per_second"),
)


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table | Chart]:
    sampled = gpus(run.timeline)
    if not sampled:
        return
    # Files may be from different machines.
    several = len({gpu.file for gpu in sampled}) > 1
    names = [f"GPU {gpu.device}" + (f", {gpu.file}" if several else "") for gpu in sampled]
    if max(len(gpu.samples) for gpu in sampled) > 1:
        places, axis = _places(run, sampled)
        for quantity in _QUANTITIES:
            yield from _chart(quantity, sampled, names, places, axis)
    yield from _table(sampled, names)


def _places(run: Run, sampled: Sequence[SampledGpu]) -> tuple[list[Floats], Axis]:
    """The x of each `sampled` GPU's samples: ns since the start of the window, or numbers without a clock."""
    if not all(gpu.samples["is_on_clock"].all() for gpu in sampled):
        return [np.arange(1, len(gpu.samples) + 1, dtype=np.float64) for gpu in sampled], Axis("sample", "position")
    starts = [int(place.window.starts[0]) for place in run.places]
    zero = min(starts) if starts else min(int(gpu.samples.start_ns[0]) for gpu in sampled)
    label = "time since the start of the window" if starts else "time since the first sample"
    return [(gpu.samples.start_ns - zero).astype(np.float64) for gpu in sampled], Axis(label, "ns")


def _chart(
    quantity: _Quantity, sampled: Sequence[SampledGpu], names: Sequence[str], places: Sequence[Floats], axis: Axis
) -> Iterator[Chart]:
    """A chart if any GPU reported the quantity, and not only zeros."""
    known = [(name, x, gpu.floats(quantity.column) * quantity.factor)
             for name, gpu, x in zip(names, sampled, places, strict=True)]  # fmt: skip
    known = [each for each in known if np.isfinite(each[2]).any()]
    if not any((np.nan_to_num(y) != 0).any() for _, _, y in known):
        return
    means = [float(np.nanmean(y)) for _, _, y in known]
    low, high = int(np.argmin(means)), int(np.argmax(means))
    said = "{lowest} to {highest}, mean {mean}"
    said += "; means of the GPUs from {low} ({low_gpu}) to {high} ({high_gpu})." if len(known) > 1 else "."
    held = _held(sampled, places) if quantity.column == "sm_clock_mhz" else ()
    limit = _power_limit(sampled, known) if quantity.column == "power_w" else ()
    yield Chart(
        "device", quantity.column.replace("_", "-"), quantity.name[0].upper() + quantity.name[1:], said, axis,
        Axis(quantity.name, quantity.unit), (*lines(known), *limit, *held),
        {"lowest": (min(float(np.nanmin(y)) for _, _, y in known), quantity.unit),
         "highest": (max(float(np.nanmax(y)) for _, _, y in known), quantity.unit),
         "mean": (float(np.mean(means)), quantity.unit), "low": (means[low], quantity.unit),
         "low_gpu": (known[low][0], "text"), "high": (means[high], quantity.unit),
         "high_gpu": (known[high][0], "text")},
    )  # fmt: skip


def _power_limit(sampled: Sequence[SampledGpu], drawn: Sequence[tuple[str, Floats, Floats]]) -> Iterator[Series]:
    """Draw the limit of the power as one line over the `drawn` ones, if it is the same in all samples of all GPUs."""
    known = np.unique(np.concatenate([gpu.floats("power_limit_w") for gpu in sampled]))
    known = known[~np.isnan(known)]
    if known.size == 1:
        ends = np.array([min(float(x.min()) for _, x, _ in drawn), max(float(x.max()) for _, x, _ in drawn)])
        yield Series("power limit", "guide", ends, np.full(2, float(known[0])))


def _held(sampled: Sequence[SampledGpu], places: Sequence[Floats]) -> Iterator[Series]:
    """Spans in which any of the `sampled` GPUs was throttled, by cause: from such a sample to the next."""
    width = max(float(x[-1]) for x in places) - min(float(x[0]) for x in places)
    for cause in HELD_BY:
        starts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for gpu, x in zip(sampled, places, strict=True):
            usual = float(np.median(np.diff(x))) if x.size > 1 else 1.0
            rows = gpu.held_by(cause)
            starts.append(x[rows].astype(np.int64))
            ends.append(np.append(x[1:], x[-1] + usual)[rows].astype(np.int64))
        near = max(int(width * _SEEN_SHARE), 1)
        found = Intervals.of(np.concatenate(starts), np.concatenate(ends) + near)
        if found:
            yield Series(
                _HELD_NAMES[cause], "spans", found.starts.astype(np.float64), (found.ends - near).astype(np.float64)
            )


def _table(sampled: Sequence[SampledGpu], names: Sequence[str]) -> Iterator[Table]:
    columns = [TableColumn("GPU", "text", names)]
    if any(gpu.name for gpu in sampled):
        columns.append(TableColumn("name", "text", [gpu.name for gpu in sampled]))
    columns.append(TableColumn("samples", "count", [len(gpu.samples) for gpu in sampled]))
    for quantity in _QUANTITIES:
        columns += _numbers(quantity, sampled)
    columns += _reasons(sampled)
    if any(column.unit not in ("text", "count") for column in columns):
        yield Table("device", "device", "GPU samples", tuple(columns), len(sampled))


def _numbers(quantity: _Quantity, sampled: Sequence[SampledGpu]) -> Iterator[TableColumn]:
    every = [gpu.floats(quantity.column) * quantity.factor for gpu in sampled]
    known = [each[~np.isnan(each)] for each in every]
    if not any(each.size for each in known):
        return
    alone = all(each.size <= 1 for each in known)  # for one sample all three are equal
    for word, of in (("mean", np.mean), ("lowest", np.min), ("highest", np.max)):
        if alone and word != "mean":
            continue
        values = [float(of(each)) if each.size else None for each in known]
        yield TableColumn(quantity.name if alone else f"{quantity.name}, {word}", quantity.unit, values)


def _reasons(sampled: Sequence[SampledGpu]) -> Iterator[TableColumn]:
    """The share of samples in which each cause throttled the GPU; causes that never did are omitted."""
    known = [gpu.samples["reasons"] != UNKNOWN for gpu in sampled]
    for cause, name in _HELD_NAMES.items():
        shares = [float(gpu.held_by(cause)[rows].mean()) if rows.any() else None
                  for gpu, rows in zip(sampled, known, strict=True)]  # fmt: skip
        if any(shares):
            yield TableColumn(name, "share", shares, "Of the samples that report a reason.")
