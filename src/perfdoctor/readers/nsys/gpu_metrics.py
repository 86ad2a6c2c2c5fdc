"""What did the GPU's own counters measure? nsys --gpu-metrics-devices: a row of GPU_METRICS a sample and counter.

A sample covers the time from its time stamp to the next: in a public recording of an A100 (76,502 samples) GR Active
follows the kernels with a correlation of 0.998 then, and 0.978 where it is taken for the time before. The GPU's number
is the low byte of `typeId`. Values are whole percent, clocks Hz. Single values are negative by a fault of the tool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from perfdoctor.model.columns import Floats, Ints
from perfdoctor.model.timeline import Frame
from perfdoctor.readers.counter_frames import SampledCounters, counter_frames
from perfdoctor.readers.nsys.generic_events import generic_samples
from perfdoctor.readers.nsys.tables import (
    GPU_METRICS,
    GPU_METRICS_COLUMNS,
    NONE,
    UNREADABLE,
    Columns,
    ExportTables,
    why,
)

_NAMES = "TARGET_INFO_GPU_METRICS"
#: Which bits of `typeId` are the GPU's number.
_DEVICE = 0xFF


def gpu_counters(tables: ExportTables, places: Sequence[tuple[int, int]]) -> dict[str, Frame]:
    """The frames `gpu_counters` and `other_gpu_counters`, of the GPUs on which any work of these `places` ran."""
    try:
        sampled = list(_sampled(tables))
    except UNREADABLE as error:
        tables.unreadable[GPU_METRICS] = str(error)
        tables.notes.append(f"`{tables.database.name}` is damaged: {GPU_METRICS} is left out ({why(error)}).")
        sampled = []
    rank_of = {device: rank for rank, device in reversed(places)}
    ours = [gpu for gpu in sampled if gpu.device in rank_of]
    if len(ours) < len(sampled):
        count = len(sampled) - len(ours)
        what = "a GPU on which" if count == 1 else f"{count:,} GPUs on which"
        tables.notes.append(f"The counters of {what} nothing of the program ran were left out.")
    return counter_frames([(gpu, rank_of[gpu.device]) for gpu in ours], "nsys")


# --- rows ---


def _sampled(tables: ExportTables) -> Iterator[SampledCounters]:
    database = tables.database
    if not database.has_rows(GPU_METRICS):
        for event_type, listed, starts, values in generic_samples(database):
            yield SampledCounters(event_type & _DEVICE, listed, starts, values)
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
            yield SampledCounters(
                kind & _DEVICE, list(named.values()), starts, _filled(values, list(named), starts, own)
            )


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
