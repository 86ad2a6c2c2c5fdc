"""What did each counter of the GPU measure on the mean: in all samples, in the window, and while kernels ran?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.counters.samples import LEAST_SAMPLES, CounterSamples, recorded_samples, usable
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats, Ints
from perfdoctor.records.gpu_metrics import GpuMetric
from perfdoctor.vocabulary.gpu_counters import COUNTERS

#: A mean of samples that cover less of the window is one of another stretch of time.
LEAST_COVERED = 0.9
_PERCENT = 100


def gpu_metrics(run: Run) -> tuple[GpuMetric, ...]:
    """One row a place and counter that was recorded, in the order of the vocabulary; then counters without a word."""
    return tuple(row for place in run.places for row in (*_known(place), *_others(place)))


def _known(place: Place) -> Iterator[GpuMetric]:
    found, trusted = recorded_samples(place), usable(place)
    window = Weights.of(trusted, place.window, begun=True)
    kernels = Weights.of(trusted, place.compute | place.communication)
    for column in found.recorded:
        values, counted = found.rows.floats(column), COUNTERS[column]
        factor = _PERCENT if counted.is_share else 1
        yield GpuMetric(
            rank=place.rank, device=place.device or 0, metric=counted.metric,
            name=found.spellings.get(column, counted.label), unit="percent" if counted.is_share else "hertz",
            samples=int((~np.isnan(values)).sum()), recording_mean=_or_none(np.nanmean(values) * factor),
            mean=_or_none(window.mean(values) * factor), mean_in_kernels=_or_none(kernels.mean(values) * factor),
        )  # fmt: skip


def _others(place: Place) -> list[GpuMetric]:
    """Counters that the vocabulary lacks, as recorded: their mean over all samples."""
    if place.device is None:
        return []
    others = place.recorded("other_gpu_counters")
    amounts, rows = others.floats("amount"), []
    for name in dict.fromkeys(others.name.values if len(others) else ()):
        own = amounts[others.name.equals(name)]
        own = own[~np.isnan(own)]
        if own.size:
            rows.append(GpuMetric(place.rank, place.device, "", name, "", int(own.size), float(own.mean()), None, None))
    return rows


def foreign_sm_share(place: Place) -> float:
    """How busy the multiprocessors were in the samples of the window in which no recorded work ran on a GPU of this
    number, of whatever rank; NaN where fewer than LEAST_SAMPLES are known.
    """
    found = usable(place)
    if found is None:
        return float("nan")
    frames = (place.timeline[signal].of(device=place.device or 0) for signal in ("kernels", "collectives", "copies"))
    busy = Intervals.union(frame.intervals for frame in frames)
    alone = (busy.overlap_ns(found.starts, found.ends) == 0) & (place.window.overlap_ns(found.starts, found.ends) > 0)
    values = found.rows.floats("sm_active_share")[alone]
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size >= LEAST_SAMPLES else float("nan")


class Weights(Struct, frozen=True):
    """How much samples count: by how much of each lies in some time, in ns, or 1 if it begins there.

    `rows`: the samples that count at all.
    """

    rows: Ints
    weights: Floats

    @classmethod
    def of(cls, found: CounterSamples | None, when: Intervals, *, begun: bool = False) -> Weights:
        """No sample counts where `found` is None, and where those that `begun` in `when` do not cover it."""
        weights = np.empty(0)
        if found is not None and when:
            weights = when.overlap_ns(found.starts, found.ends).astype(np.float64)
            if begun:
                covers = weights.sum() >= LEAST_COVERED * when.total_ns
                weights = when.covers(found.starts).astype(np.float64) if covers else np.empty(0)
        rows = np.flatnonzero(weights)
        return cls(rows, weights[rows])

    def mean(self, values: Floats) -> float:
        """The weighted mean of the values that are known; NaN of fewer than LEAST_SAMPLES."""
        own, weights = values[self.rows], self.weights
        if (unknown := np.isnan(own)).any():
            own, weights = own[~unknown], weights[~unknown]
        return float((own * weights).sum() / weights.sum()) if own.size >= LEAST_SAMPLES else float("nan")


def means_of_spans(place: Place, column: str, starts: Ints, ends: Ints) -> Floats:
    """The mean of a counter in each of these spans, each sample by how much of it lies there; NaN where samples do not
    cover a span, or where it is shorter than LEAST_SAMPLES of them.
    """
    found = usable(place)
    if found is None:
        return np.full(starts.size, np.nan)
    values = found.rows.floats(column)
    known = ~np.isnan(values)
    edges = np.stack((found.starts[known], found.ends[known]), axis=1).ravel()
    if not edges.size:
        return np.full(starts.size, np.nan)
    length = np.diff(edges, prepend=edges[0])
    length[::2] = 0  # from the end of one sample to the begin of the next nothing is known
    total = np.cumsum(length * np.repeat(values[known], 2))
    inside, covered = (
        np.interp(ends, edges, each) - np.interp(starts, edges, each) for each in (total, np.cumsum(length))
    )
    is_known = (covered >= LEAST_COVERED * (ends - starts)) & (ends - starts >= LEAST_SAMPLES * found.usual_ns)
    return np.where(is_known, inside / np.maximum(covered, 1), np.nan)


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
