"""The page `device`: what did the GPUs tell of themselves while the training ran?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.machine.gpu_samples import HELD_BY, Gpu, gpus
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Axis, Chart, Series, Table, TableColumn, Unit
from perfdoctor.views.lines import lines

_MHZ = 1e6
#: A GPU is at work in samples in which a kernel ran for half of the time, as in `metrics/machine/gpu_samples.py`.
_AT_WORK = 0.5
_HELD_NAMES = {
    "heat": "held down by heat", "brake": "held down by the power brake", "hardware": "held down by the board",
    "power": "held down by the power limit", "clocks-set": "held down by clocks that somebody set",
}  # fmt: skip
#: Stretches nearer to each other than this share of the picture's width are one for the eye.
_SEEN_SHARE = 0.002


@dataclass(frozen=True)
class _Quantity:
    """A column of the samples: in the picture and the table its numbers are times `factor`, in `unit`."""

    column: str
    name: str
    unit: Unit
    factor: float = 1.0


_QUANTITIES = (
    _Quantity("sm_clock_mhz", "SM clock", "hertz", _MHZ),
    _Quantity("power_w", "power", "watt"),
    _Quantity("temperature_c", "temperature", "celsius"),
    _Quantity("utilization_share", "time with any kernel", "share"),
    _Quantity("sm_active_share", "SMs at work", "share"),
    _Quantity("tensor_active_share", "tensor cores at work", "share"),
    _Quantity("dram_active_share", "memory at work", "share"),
    _Quantity("memory_used_bytes", "memory in use", "bytes"),
    _Quantity("memory_clock_mhz", "memory clock", "hertz", _MHZ),
    _Quantity("pcie_rx_bytes_per_second", "received over PCIe", "bytes_per_second"),
    _Quantity("pcie_tx_bytes_per_second", "sent over PCIe", "bytes_per_second"),
    _Quantity("nvlink_rx_bytes_per_second", "received over NVLink", "bytes_per_second"),
    _Quantity("nvlink_tx_bytes_per_second", "sent over NVLink", "bytes_per_second"),
)
#: The limit of a quantity, where samples tell it.
_LIMITS = {"power_w": ("power_limit_w", "power limit")}


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table | Chart]:
    sampled = gpus(run.timeline)
    if not sampled:
        return
    names = _names(sampled)
    if max(len(gpu.samples) for gpu in sampled) > 1:
        places, axis = _places(run, sampled)
        for quantity in _QUANTITIES:
            yield from _chart(quantity, sampled, names, places, axis)
    yield from _table(sampled, names)


def _names(sampled: Sequence[Gpu]) -> list[str]:
    """`GPU 3`, and of which file, where there are several: another file may tell of another machine."""
    several = len({gpu.file for gpu in sampled}) > 1
    return [f"GPU {gpu.device}" + (f", {gpu.file}" if several else "") for gpu in sampled]


def _places(run: Run, sampled: Sequence[Gpu]) -> tuple[list[Floats], Axis]:
    """Where the samples of each GPU stand: in ns behind the window's begin, or, on no clock, one behind the other."""
    if not all(gpu.samples["is_on_clock"].all() for gpu in sampled):
        return [np.arange(1, len(gpu.samples) + 1, dtype=np.float64) for gpu in sampled], Axis("sample", "position")
    starts = [int(place.window.starts[0]) for place in run.places]
    zero = min(starts) if starts else min(int(gpu.samples.start_ns[0]) for gpu in sampled)
    label = "time behind the begin of the window" if starts else "time behind the first sample"
    return [(gpu.samples.start_ns - zero).astype(np.float64) for gpu in sampled], Axis(label, "ns")


# --- one picture a quantity -------------------------------------------------------------------------------------------


def _chart(
    quantity: _Quantity, sampled: Sequence[Gpu], names: Sequence[str], places: Sequence[Floats], axis: Axis
) -> Iterator[Chart]:
    """Where any GPU tells it, and it is not nothing all the time."""
    told = [(name, x, gpu.floats(quantity.column) * quantity.factor)
            for name, gpu, x in zip(names, sampled, places, strict=True)]  # fmt: skip
    told = [each for each in told if np.isfinite(each[2]).any()]
    if not any((np.nan_to_num(y) != 0).any() for _, _, y in told):
        return
    means = [float(np.nanmean(y)) for _, _, y in told]
    low, high = int(np.argmin(means)), int(np.argmax(means))
    said = "{lowest} to {highest}, {mean} on the mean"
    said += "; on the mean of each GPU {low} ({low_gpu}) to {high} ({high_gpu})." if len(told) > 1 else "."
    held = _held(sampled, places) if quantity.column == "sm_clock_mhz" else ()
    yield Chart(
        "device", quantity.column.replace("_", "-"), quantity.name[0].upper() + quantity.name[1:], said, axis,
        Axis(quantity.name, quantity.unit), (*lines(told), *_limit(quantity, sampled, told), *held),
        {"lowest": (min(float(np.nanmin(y)) for _, _, y in told), quantity.unit),
         "highest": (max(float(np.nanmax(y)) for _, _, y in told), quantity.unit),
         "mean": (float(np.mean(means)), quantity.unit), "low": (means[low], quantity.unit),
         "low_gpu": (told[low][0], "text"), "high": (means[high], quantity.unit), "high_gpu": (told[high][0], "text")},
    )  # fmt: skip


def _limit(quantity: _Quantity, sampled: Sequence[Gpu], told: Sequence[tuple[str, Floats, Floats]]) -> Iterator[Series]:
    """One line, where all samples of all GPUs tell the same limit."""
    column, name = _LIMITS.get(quantity.column, ("", ""))
    known = np.unique(np.concatenate([gpu.floats(column) for gpu in sampled])) if column else np.empty(0)
    known = known[~np.isnan(known)]
    if known.size == 1:
        ends = np.array([min(float(x.min()) for _, x, _ in told), max(float(x.max()) for _, x, _ in told)])
        yield Series(name, "guide", ends, np.full(2, float(known[0])))


def _held(sampled: Sequence[Gpu], places: Sequence[Floats]) -> Iterator[Series]:
    """When any GPU's clocks were held down, by what: from such a sample to the next."""
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
                _HELD_NAMES[cause], "stretches", found.starts.astype(np.float64), (found.ends - near).astype(np.float64)
            )


# --- all of them in numbers -------------------------------------------------------------------------------------------


def _table(sampled: Sequence[Gpu], names: Sequence[str]) -> Iterator[Table]:
    columns = [TableColumn("GPU", "text", names)]
    if any(gpu.name for gpu in sampled):
        columns.append(TableColumn("name", "text", [gpu.name for gpu in sampled]))
    columns.append(TableColumn("samples", "count", [len(gpu.samples) for gpu in sampled]))
    for quantity in _QUANTITIES:
        columns += _numbers(quantity, sampled)
    columns += _reasons(sampled)
    if any(column.unit not in ("text", "count") for column in columns):
        yield Table("device", "device", "GPUs as they were sampled", tuple(columns), len(sampled))


def _numbers(quantity: _Quantity, sampled: Sequence[Gpu]) -> Iterator[TableColumn]:
    every = [gpu.floats(quantity.column) * quantity.factor for gpu in sampled]
    known = [each[~np.isnan(each)] for each in every]
    if not any(each.size for each in known):
        return
    alone = all(each.size <= 1 for each in known)  # of one sample all three are the same
    for word, of in (("mean", np.mean), ("lowest", np.min), ("highest", np.max)):
        if alone and word != "mean":
            continue
        values = [float(of(each)) if each.size else None for each in known]
        yield TableColumn(quantity.name if alone else f"{quantity.name}, {word}", quantity.unit, values)


def _reasons(sampled: Sequence[Gpu]) -> Iterator[TableColumn]:
    """Which share of the samples that tell it each cause held the clocks down; causes that never did are left out."""
    told = [gpu.samples["reasons"] != UNKNOWN for gpu in sampled]
    for cause, name in _HELD_NAMES.items():
        shares = [float(gpu.held_by(cause)[rows].mean()) if rows.any() else None
                  for gpu, rows in zip(sampled, told, strict=True)]  # fmt: skip
        if any(shares):
            yield TableColumn(name, "share", shares, "Of the samples that tell it.")
