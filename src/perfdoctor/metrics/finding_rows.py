"""Which kernels, copies or collectives is a finding about? For each place one bool a row, as a replay asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launch_rows
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Mask


def work_of(run: Run, rows: Callable[[Place], Mask]) -> Mapping[tuple[int, int], Mask]:
    """By (rank, device), these rows of the place's frame."""
    return {(place.rank, place.device or 0): rows(place) for place in run.places}


def kernels_and_copies(place: Place, kernels: Mask | None = None, copies: Mask | None = None) -> Mask:
    """Rows of `place.kernels` and, behind them, of `place.copies`, as `fused` asks for them; none where not given."""
    both = (
        np.zeros(len(frame), dtype=bool) if rows is None else rows
        for rows, frame in ((kernels, place.kernels), (copies, place.copies))
    )
    together: Mask = np.concatenate(tuple(both))
    return together


def launched_within(place: Place, spans: Intervals) -> Mask:
    """One bool a row of `place.kernels`: was it launched in one of these spans of host time?"""
    calls = place.timeline.calls
    call = launch_rows(place.kernels, calls)
    if not spans or not len(calls):
        return np.zeros(len(call), dtype=bool)
    at = calls.start_ns[np.maximum(call, 0)]
    inside: Mask = (call != UNKNOWN) & (spans.overlap_ns(at, at + 1) > 0)
    return inside
