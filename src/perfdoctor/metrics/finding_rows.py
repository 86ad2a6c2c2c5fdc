"""Which kernels, copies, collectives or host time is a finding about: for a replay, and the largest as evidence?"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Rows

#: How many kernels a table of a finding names.
_TABLE_ROWS = 5


def work_of(run: Run, rows: Callable[[Place], Mask]) -> Mapping[tuple[int, int], Mask]:
    """By (rank, device) these rows of the place's frame, one bool each, as a replay asks for them."""
    return {place.rank_and_device: rows(place) for place in run.places}


def kernels_and_copies(place: Place, kernels: Mask | None = None, copies: Mask | None = None) -> Mask:
    """Rows of `place.kernels` and, behind them, of `place.copies`, as `fused` asks for them; none where not given."""
    frames = ((kernels, place.kernels), (copies, place.copies))
    both = (np.zeros(len(frame), dtype=bool) if rows is None else rows for rows, frame in frames)
    return np.concatenate(tuple(both))


def saved_alone_ns(place: Place, rows: Mask, saved_ns: float) -> float:
    """What of `saved_ns` in these rows of `place.kernels` shortens the window: beside other kernels they gain less."""
    summed = float(place.kernel_ns[rows].sum())
    return saved_ns * place.alone_ns(rows) / summed if summed else 0.0


def thread_time(place: Place, finding: Finding) -> Intervals:
    """When this place's training thread did what the finding is about."""
    starts, ends = finding.thread_time.get(place.rank, ((), ()))
    return Intervals.of(starts, ends)


def largest(place: Place, rows: Mask, label: str) -> Rows:
    """The names among these rows of `place.kernels` that took most time, with count and time a step."""
    found = place.kernels.name.take(rows).sums(place.kernel_ns[rows])
    top = [each for each in sorted(found, key=lambda each: -each[2])[:_TABLE_ROWS] if each[2]]
    table = tuple((name, count / place.units, int(total / place.units)) for name, count, total in top)
    return Rows(label, ("kernel", "count", "time"), ("text", "count", "ns"), table)
