"""What did the GPU's own counters measure? nsys --gpu-metrics-devices: a row of GPU_METRICS a sample and counter.

A sample covers the time from its time stamp to the next: in a public recording of an A100 (76,502 samples) GR Active
follows the kernels with a correlation of 0.998 then, and 0.978 where it is taken for the time before. The GPU's number
is the low byte of `typeId`. Values are whole percent, clocks Hz. Single values are negative by a fault of the tool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.model.columns import Floats, Ints
from perfdoctor.model.timeline import Column, Frame, Text
from perfdoctor.readers.nsys.generic_events import generic_samples
from perfdoctor.readers.nsys.tables import GPU_METRICS, GPU_METRICS_COLUMNS, NONE, UNREADABLE, Columns, ExportTables
from perfdoctor.vocabulary.gpu_counters import COUNTERS, Counter, counter

_NAMES = "TARGET_INFO_GPU_METRICS"
#: Which bits of `typeId` are the GPU's number.
_DEVICE = 0xFF
#: A sample lasts no longer than this many usual ones: where the tool lost samples, nothing is known.
_HOLE = 4
#: More than this is no share of a peak, but a fault: clocks that differ from the nominal ones make it 110 % at most.
_MOST_PERCENT = 200
#: Clocks below 100,000 Hz are in MHz.
_LEAST_HZ, _MHZ = 100_000, 1_000_000


class _Sampled(Struct, frozen=True):
    """One GPU's samples: when each began, and a row of values for each metric, NaN where it is unknown."""

    device: int
    names: Sequence[str]
    starts: Ints
    values: Floats

    @property
    def ends(self) -> Ints:
        steps = np.diff(self.starts)
        usual = int(np.median(steps)) if steps.size else 0
        lengths: Ints = np.minimum(np.append(steps, usual), _HOLE * usual)
        return self.starts + lengths


def gpu_counters(tables: ExportTables, places: Sequence[tuple[int, int]]) -> dict[str, Frame]:
    """The frames `gpu_counters` and `other_gpu_counters`, of the GPUs on which any work of these `places` ran."""
    try:
        sampled = list(_sampled(tables))
    except UNREADABLE as error:
        tables.unreadable[GPU_METRICS] = str(error)
        tables.notes.append(f"`{tables.database.name}` is damaged: {GPU_METRICS} is left out ({error}).")
        sampled = []
    rank_of = {device: rank for rank, device in reversed(places)}
    ours = [gpu for gpu in sampled if gpu.device in rank_of]
    if len(ours) < len(sampled):
        count = len(sampled) - len(ours)
        what = "a GPU on which" if count == 1 else f"{count:,} GPUs on which"
        tables.notes.append(f"The counters of {what} nothing of the program ran were left out.")
    return {
        "gpu_counters": _join("gpu_counters", [_known(gpu, rank_of[gpu.device]) for gpu in ours]),
        "other_gpu_counters": _join("other_gpu_counters", [_others(gpu, rank_of[gpu.device]) for gpu in ours]),
    }


def _join(signal: str, frames: Sequence[Frame]) -> Frame:
    return Frame.join(frames) if frames else Frame.empty(signal)


# --- rows ---


def _sampled(tables: ExportTables) -> Iterator[_Sampled]:
    database = tables.database
    if not database.has_rows(GPU_METRICS):
        for event_type, listed, starts, values in generic_samples(database):
            yield _Sampled(event_type & _DEVICE, listed, starts, values)
        return
    names: dict[int, dict[int, str]] = {}
    for kind, number, name in database.rows(_NAMES, "typeId, metricId, metricName"):
        if isinstance(kind, int) and isinstance(number, int):
            names.setdefault(kind, {})[number] = str(name)
    if not names:
        return
    rows, is_whole = _rows(tables, names)
    for kind, named in names.items():
        own = rows if len(names) == 1 else {column: each[rows["typeId"] == kind] for column, each in rows.items()}
        times = own["timestamp"] if not is_whole else own["timestamp"][own["metricId"] == min(named)]
        starts = _ascending(tables, times[times != NONE], kind & _DEVICE)
        if starts.size:
            values = np.full((len(named), starts.size), 0.0 if is_whole else np.nan)
            yield _Sampled(kind & _DEVICE, list(named.values()), starts, _filled(values, list(named), starts, own))


def _rows(tables: ExportTables, names: Mapping[int, Mapping[int, str]]) -> tuple[Columns, bool]:
    """The rows of the table, and whether those of value 0 are left out.

    They are where there are as many rows as samples times metrics, so that what is not there is 0; else all are read,
    and what is not there is unknown.
    """
    database = tables.database
    rows = database.integers(GPU_METRICS, GPU_METRICS_COLUMNS)
    ((count,),) = database.rows(GPU_METRICS, "count(*)") or ((0,),)
    expected = 0
    for kind, named in names.items():
        times = rows["timestamp"][(rows["typeId"] == kind) & (rows["metricId"] == min(named))]
        expected += times.size * len(named) if (times[1:] > times[:-1]).all() and (times != NONE).all() else 0
    if count == expected:
        return rows, True
    return database.integers(GPU_METRICS, GPU_METRICS_COLUMNS, "1"), False


def _ascending(tables: ExportTables, times: Ints, device: int) -> Ints:
    """The different times, ascending."""
    if (times[1:] > times[:-1]).all():
        return times
    if back := int((times[1:] < times[:-1]).sum()):
        tables.notes.append(
            f"The samples of GPU {device}'s counters go back in time {back:,} time{'s' * (back != 1)}, and were sorted."
        )
    return np.unique(times)


def _filled(values: Floats, metrics: Sequence[int], starts: Ints, rows: Columns) -> Floats:
    """Return these `values`, a row a metric and a column a sample, with what the rows of the table say of them."""
    order = np.argsort(metrics)
    place = np.searchsorted(np.asarray(metrics)[order], rows["metricId"])
    known = (place < len(metrics)) & np.isin(rows["metricId"], metrics) & (rows["timestamp"] != NONE)
    metric, sample = order[place[known]], np.searchsorted(starts, rows["timestamp"][known])
    values[metric, sample] = np.where(rows["value"][known] == NONE, np.nan, rows["value"][known])
    return values


# --- frames ---


def _known(gpu: _Sampled, rank: int) -> Frame:
    """A row a sample, with the known counters; of two spellings of one counter the first."""
    place: dict[str, int] = {}
    for row, found in enumerate(map(counter, gpu.names)):
        if found:
            place.setdefault(found.column, row)
    unknown = np.full(gpu.starts.size, np.nan)
    columns: dict[str, Column] = {
        column: _in_unit(each, gpu.values[place[column]]) if column in place else unknown
        for column, each in COUNTERS.items()
    }
    spelled = "\n".join(f"{column}: {gpu.names[row]}" for column, row in place.items())
    return Frame({
        **_place(gpu, rank), "name": Text.constant("nsys", gpu.starts.size), **columns,
        "spellings": Text.constant(spelled, gpu.starts.size),
    })  # fmt: skip


def _in_unit(counted: Counter, values: Floats) -> Floats:
    """Shares from 0 to 1 and Hz; NaN for what cannot be."""
    if counted.is_share:
        return np.where((values >= 0) & (values <= _MOST_PERCENT), values, np.nan) / 100
    return np.where(values > 0, np.where(values < _LEAST_HZ, values * _MHZ, values), np.nan)


def _others(gpu: _Sampled, rank: int) -> Frame:
    """A row a sample and metric that is not known, or that another spelling already gave."""
    taken: set[str] = set()
    rows = []
    for row, found in enumerate(map(counter, gpu.names)):
        if found is None or found.column in taken:
            rows.append(row)
        else:
            taken.add(found.column)
    if not rows:
        return Frame.empty("other_gpu_counters")
    size, names = gpu.starts.size, [gpu.names[row] for row in rows]
    repeated = {name: np.repeat(column, len(rows)) for name, column in _place(gpu, rank).items()}
    codes = np.tile(np.arange(len(rows), dtype=np.int32), size)
    return Frame({**repeated, "name": Text(codes, names), "amount": gpu.values[rows].T.ravel()})


def _place(gpu: _Sampled, rank: int) -> dict[str, Ints]:
    size = gpu.starts.size
    return {
        "rank": np.full(size, rank, np.int64), "device": np.full(size, gpu.device, np.int64),
        "start_ns": gpu.starts, "end_ns": gpu.ends,
    }  # fmt: skip
