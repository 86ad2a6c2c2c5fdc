"""How do samples of GPUs become a signal: our own, those of `nvidia-smi --query-gpu`, its dmon, and DCGM's?

All are tables of text (`device_tables`). Which of the numbers of a row without a header is the power drawn and which
the limit, nobody can know, and they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import SAMPLE_NUMBERS, UNKNOWN, Floats, Frame, Ints, Source, Text, Timeline
from perfdoctor.readers import text_rows
from perfdoctor.readers.machine import sample_columns as device_columns
from perfdoctor.readers.machine.sample_columns import DEVICE, GPU, REASONS, TIME, Meaning
from perfdoctor.readers.machine.sample_tables import Table, Tables, looks_like, parsed
from perfdoctor.readers.machine.sample_times import EPOCH_NS, SECOND_NS, ordered, times_of

__all__ = ["looks_like", "read"]

_HALF = 0.5


def read(path: Path) -> Timeline:
    """All samples in the file, in the order of their times. PerfdoctorError where it cannot be read or holds none."""
    found = parsed(text_rows.lines(path))
    frames = [frame for table in found.tables if table.rows for frame in [_frame(table, path.name)] if len(frame)]
    if not frames:
        raise PerfdoctorError(
            f"{path.name} holds no samples of a GPU" + (", only a header" if found.tables else ""),
            do="Sample while the training runs: nvidia-smi --query-gpu=timestamp,index,… --format=csv -lms 200",
        )
    frame = Frame.join(frames).sorted()
    return Timeline.build(
        {"device_samples": frame},
        {"device_samples"},
        sources=[Source("nvml", path.name, "")],
        notes=list(_notes(path.name, frame, found)),
    )


# --- tables → the signal ---------------------------------------------------------------------------------------------


def _frame(table: Table, name: str) -> Frame:
    columns = list(zip(*table.rows, strict=True))
    told: dict[str, list[tuple[Meaning, Sequence[str]]]] = {}
    for meaning, cells in zip(table.meanings, columns, strict=True):
        if meaning is not None:
            told.setdefault(meaning.column, []).append((meaning, cells))
    count = len(table.rows)
    device = np.array([int(cell) for cell in told[DEVICE][0][1]] if DEVICE in told else [0] * count, dtype=np.int64)
    start, on_clock = _times(told, device)
    numbers = {column: _numbers(told, column, count) for column in SAMPLE_NUMBERS}
    for meaning, column in ((told[c][0][0], c) for c in SAMPLE_NUMBERS if c in told):
        if meaning.is_counter:
            numbers[column] = _rates(numbers[column], start, device)
    reasons = _with_violations(_reasons(told, count), numbers["power_violation_share"])
    return Frame({
        "rank": np.full(count, UNKNOWN, np.int64), "device": device, "start_ns": start, "end_ns": start,
        "name": Text.constant(name, count), "gpu": Text.of(c.strip() for c in told[GPU][0][1]) if GPU in told
        else Text.constant("", count), "reasons": reasons, "is_on_clock": np.full(count, on_clock),
        **numbers,
    }).sorted()  # fmt: skip


def _times(told: dict[str, list[tuple[Meaning, Sequence[str]]]], device: Ints) -> tuple[Ints, bool]:
    if TIME in told:
        parts = [cells for _, cells in told[TIME]]  # dmon writes date and time in two columns
        known = times_of([" ".join(each) for each in zip(*parts, strict=True)])
        if known is not None:
            return known
    return ordered(device), False


def _numbers(told: dict[str, list[tuple[Meaning, Sequence[str]]]], column: str, count: int) -> Floats:
    if column not in told:
        return np.full(count, np.nan)
    meaning, cells = told[column][0]
    number = device_columns.number_of(meaning)
    table = {cell: number(cell) for cell in set(cells)}
    return np.fromiter(map(table.__getitem__, cells), np.float64, count)


def _reasons(told: dict[str, list[tuple[Meaning, Sequence[str]]]], count: int) -> Ints:
    """The bits of all columns about reasons together, UNKNOWN where none is told."""
    bits = np.full(count, UNKNOWN, np.int64)
    for meaning, cells in told.get(REASONS, ()):
        table = {cell: device_columns.reasons_of(meaning, cell) for cell in set(cells)}
        own = np.array([UNKNOWN if (bit := table[cell]) is None else bit for cell in cells], dtype=np.int64)
        bits = np.where(own == UNKNOWN, bits, np.where(bits == UNKNOWN, own, bits | own))
    return bits


def _with_violations(bits: Ints, share: Floats) -> Ints:
    """With the power limit as a reason where dmon says that it held the clocks for half of the interval and more."""
    told = ~np.isnan(share)
    own = np.where(share >= _HALF, device_columns.BITS["sw.power.cap"], 0)
    joined: Ints = np.where(told, np.where(bits == UNKNOWN, own, bits | own), bits)
    return joined


def _rates(counted: Floats, start: Ints, device: Ints) -> Floats:
    """What a counter rose by in each second since the GPU's row before; NaN at its first, and where it fell."""
    rates = np.full(counted.size, np.nan)
    for each in np.unique(device):
        rows = np.flatnonzero(device == each)
        rose, ns = np.diff(counted[rows]), np.diff(start[rows])
        with np.errstate(invalid="ignore", divide="ignore"):
            rates[rows[1:]] = np.where((rose >= 0) & (ns > 0), rose / (ns / SECOND_NS), np.nan)
    return rates


# --- what was read ---------------------------------------------------------------------------------------------------


def _notes(name: str, frame: Frame, found: Tables) -> Iterator[str]:
    gpus = np.unique(frame["device"]).size
    said = [f"{len(frame):,} samples of {gpus} GPU{'s' * (gpus > 1)}"]
    span_s = (frame.start_ns[-1] - frame.start_ns[0]) / SECOND_NS
    if frame.start_ns[0] >= EPOCH_NS and span_s:
        said[0] += f" over {span_s:,.0f} s"
    for column, label, scale, unit in (
        ("power_w", "power", 1, "W"), ("sm_clock_mhz", "SM clock", 1, "MHz"), ("temperature_c", "temperature", 1, "°C"),
        ("utilization_share", "utilisation", 100, "%"), ("memory_used_bytes", "memory", 2**-30, "GiB"),
        ("nvlink_tx_bytes_per_second", "NVLink out", 1e-9, "GB/s"),
        ("pcie_tx_bytes_per_second", "PCIe out", 1e-9, "GB/s"),
    ):  # fmt: skip
        known = frame.floats(column)[~np.isnan(frame.floats(column))] * scale
        if known.size:
            low, high = f"{known.min():.0f}", f"{known.max():.0f}"
            said.append(f"{label} {low} {unit}" if low == high else f"{label} {low}-{high} {unit}")
    yield f"{name}: {', '.join(said)}."
    if found.untold:
        yield (
            f"{name} was printed without a header: which of its numbers is which is not known, and they are left out. "
            "Without noheader in --format they tell themselves."
        )
    if found.dropped:
        yield f"{name}: {found.dropped:,} line{'s are' if found.dropped > 1 else ' is'} no samples, and left out."
