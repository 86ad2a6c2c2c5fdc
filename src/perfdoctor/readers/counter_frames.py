"""How do samples of a GPU's counters become frames, whichever tool took them? Known ones are columns, others rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.model.columns import Floats, Ints
from perfdoctor.model.timeline import Column, Frame, Text
from perfdoctor.vocabulary.gpu_counters import COUNTERS, Counter, counter

#: A sample lasts no longer than this many usual ones: where the tool lost samples, nothing is known.
_HOLE = 4
#: More than this is no share of a peak, but a fault: clocks that differ from the nominal ones make it 110 % at most.
_MOST_PERCENT = 200
#: Clocks below 100,000 Hz are in MHz.
_LEAST_HZ, _MHZ = 100_000, 1_000_000


class SampledCounters(Struct, frozen=True):
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


def counter_frames(sampled: Sequence[tuple[SampledCounters, int]], tool: str) -> dict[str, Frame]:
    """The frames `gpu_counters` and `other_gpu_counters` of GPUs and their ranks, sampled by this tool."""
    known = [_known(gpu, rank, tool) for gpu, rank in sampled]
    others = [_others(gpu, rank) for gpu, rank in sampled]
    return {
        "gpu_counters": Frame.join(known) if known else Frame.empty("gpu_counters"),
        "other_gpu_counters": Frame.join(others) if others else Frame.empty("other_gpu_counters"),
    }


def _known(gpu: SampledCounters, rank: int, tool: str) -> Frame:
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
        **_place(gpu, rank), "name": Text.constant(tool, gpu.starts.size), **columns,
        "spellings": Text.constant(spelled, gpu.starts.size),
    })  # fmt: skip


def _in_unit(counted: Counter, values: Floats) -> Floats:
    """Shares from 0 to 1 and Hz; NaN for what cannot be."""
    if counted.is_share:
        return np.where((values >= 0) & (values <= _MOST_PERCENT), values, np.nan) / 100
    return np.where(values > 0, np.where(values < _LEAST_HZ, values * _MHZ, values), np.nan)


def _others(gpu: SampledCounters, rank: int) -> Frame:
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


def _place(gpu: SampledCounters, rank: int) -> dict[str, Ints]:
    size = gpu.starts.size
    return {
        "rank": np.full(size, rank, np.int64), "device": np.full(size, gpu.device, np.int64),
        "start_ns": gpu.starts, "end_ns": gpu.ends,
    }  # fmt: skip
