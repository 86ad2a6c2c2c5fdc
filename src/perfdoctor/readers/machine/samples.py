"""How do samples of GPUs become a signal: our own, those of `nvidia-smi --query-gpu`, its dmon, and DCGM's?

All are tables of text (`sample_tables`). Without a header the numbers are left out: power, for instance, cannot be
distinguished from its limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import SAMPLE_NUMBERS, UNKNOWN, Floats, Frame, Ints, Text, Timeline
from perfdoctor.readers import text_rows
from perfdoctor.readers.machine import sample_columns as device_columns
from perfdoctor.readers.machine.sample_columns import DEVICE, GPU, REASONS, TIME, Meaning
from perfdoctor.readers.machine.sample_tables import SampleTable, SampleTables, parsed
from perfdoctor.readers.machine.sample_times import EPOCH_NS, SECOND_NS, ordered, times_of

#: Of a column: what each of the tool's columns of it means, and its cells.
_Cells = dict[str, list[tuple[Meaning, Sequence[str]]]]


def read(path: Path) -> Timeline:
    """All samples in the file, in the order of their times. PerfdoctorError where it cannot be read or holds none."""
    found = parsed(text_rows.lines(path))
    frames = [frame for table in found.tables if table.rows for frame in [_frame(table, path.name)] if len(frame)]
    if not frames:
        raise PerfdoctorError(
            f"{path.name} holds no samples of a GPU" + (", only a header" if found.tables else ""),
            do="Sample while the training runs: nvidia-smi --query-gpu=timestamp,index,… --format=csv -lms 200",
        )
    frame = Frame.join(frames)
    return text_rows.timeline("device_samples", frame, "nvml", path.name, _notes(path.name, frame, found))


# --- tables → the signal ---------------------------------------------------------------------------------------------


def _frame(table: SampleTable, name: str) -> Frame:
    columns = list(zip(*table.rows, strict=True))
    cells: _Cells = {}
    for meaning, values in zip(table.meanings, columns, strict=True):
        if meaning is not None:
            cells.setdefault(meaning.column, []).append((meaning, values))
    count = len(table.rows)
    device = np.array([int(cell) for cell in cells[DEVICE][0][1]] if DEVICE in cells else [0] * count, dtype=np.int64)
    start, on_clock = _times(cells, device)
    numbers = {column: _numbers(cells, column, count) for column in SAMPLE_NUMBERS}
    for meaning, column in ((cells[c][0][0], c) for c in SAMPLE_NUMBERS if c in cells):
        if meaning.is_counter:
            numbers[column] = _rates(numbers[column], start, device)
    reasons = _reasons(cells, numbers["power_violation_share"])
    return Frame({
        "rank": np.full(count, UNKNOWN, np.int64), "device": device, "start_ns": start, "end_ns": start,
        "name": Text.constant(name, count), "gpu": Text.of(c.strip() for c in cells[GPU][0][1]) if GPU in cells
        else Text.constant("", count), "reasons": reasons, "is_on_clock": np.full(count, on_clock),
        **numbers,
    }).sorted()  # fmt: skip


def _times(cells: _Cells, device: Ints) -> tuple[Ints, bool]:
    """The time of each row in ns, and whether it is certainly UTC."""
    if TIME in cells:
        parts = [values for _, values in cells[TIME]]  # dmon writes date and time in two columns
        known = times_of([" ".join(each) for each in zip(*parts, strict=True)])
        if known is not None:
            return known
    return ordered(device), False


def _numbers(cells: _Cells, column: str, count: int) -> Floats:
    """The numbers of a column, in its unit; NaN where they are unknown."""
    if column not in cells:
        return np.full(count, np.nan)
    meaning, values = cells[column][0]
    number = device_columns.number_of(meaning)
    table = {value: number(value) for value in set(values)}
    return np.fromiter(map(table.__getitem__, values), np.float64, count)


def _reasons(cells: _Cells, power_violation_share: Floats) -> Ints:
    """The bits of all columns about reasons together, UNKNOWN where none is known.

    The power limit is one where dmon shows that it reduced the clocks for half the interval or more.
    """
    limited = np.where(power_violation_share >= 0.5, device_columns.BITS["sw.power.cap"], 0)
    columns = []
    for meaning, values in cells.get(REASONS, ()):
        table = {value: device_columns.reasons_of(meaning, value) for value in set(values)}
        columns.append(np.array([UNKNOWN if (bit := table[value]) is None else bit for value in values], np.int64))
    columns.append(np.where(np.isnan(power_violation_share), UNKNOWN, limited))
    bits = np.full(power_violation_share.size, UNKNOWN, np.int64)
    for own in columns:
        bits = np.where(own == UNKNOWN, bits, np.where(bits == UNKNOWN, own, bits | own))
    return bits


def _rates(counted: Floats, start: Ints, device: Ints) -> Floats:
    """Increase of `counted` per second since the GPU's previous row; NaN in its first row, and where it decreased."""
    rates = np.full(counted.size, np.nan)
    for each in np.unique(device):
        rows = np.flatnonzero(device == each)
        rose, ns = np.diff(counted[rows]), np.diff(start[rows])
        with np.errstate(invalid="ignore", divide="ignore"):
            rates[rows[1:]] = np.where((rose >= 0) & (ns > 0), rose / (ns / SECOND_NS), np.nan)
    return rates


# --- what was read ---------------------------------------------------------------------------------------------------


def _notes(name: str, frame: Frame, found: SampleTables) -> Iterator[str]:
    gpus = np.unique(frame["device"]).size
    parts = [f"{len(frame):,} samples of {gpus} GPU{'s' * (gpus > 1)}"]
    span_s = (frame.start_ns[-1] - frame.start_ns[0]) / SECOND_NS
    if frame.start_ns[0] >= EPOCH_NS and span_s:
        parts[0] += f" over {span_s:,.0f} s"
    for column, label, scale, unit in (
        ("power_w", "power", 1, "W"), ("sm_clock_mhz", "SM clock", 1, "MHz"), ("temperature_c", "temperature", 1, "°C"),
        ("utilization_share", "utilisation", 100, "%"), ("memory_used_bytes", "memory", 2**-30, "GiB"),
        ("nvlink_tx_bytes_per_second", "NVLink out", 1e-9, "GB/s"),
        ("pcie_tx_bytes_per_second", "PCIe out", 1e-9, "GB/s"),
    ):  # fmt: skip
        known = frame.floats(column)[~np.isnan(frame.floats(column))] * scale
        if known.size:
            low, high = f"{known.min():.0f}", f"{known.max():.0f}"
            parts.append(f"{label} {low} {unit}" if low == high else f"{label} {low}-{high} {unit}")
    yield f"{name}: {', '.join(parts)}."
    if found.lacks_header:
        yield (
            f"{name} has no header, so the meaning of its numbers is unknown: they are left out. "
            "Print it without noheader in --format."
        )
    if found.dropped:
        yield f"{name}: {found.dropped:,} line{'s are no samples' if found.dropped > 1 else ' is no sample'}: left out."
