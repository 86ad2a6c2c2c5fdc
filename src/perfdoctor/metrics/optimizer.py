"""Which kernels update the parameters? Those launched inside the optimizer's step."""

from __future__ import annotations

import re

import numpy as np

from perfdoctor.metrics.breakdown import Place
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.links import launch_rows
from perfdoctor.timeline.model import UNKNOWN

_OPTIMIZER_RANGE = re.compile(
    r"^Optimizer\.step#|^\W*optimizer([_ .]?(step|update))?\W*$|\boptimizer[_ ]step\b", re.IGNORECASE
)
_FUSED = re.compile(r"multi_tensor|fused|foreach", re.IGNORECASE)

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


def in_optimizer(place: Place) -> Mask:
    """One bool a row of `place.kernels`: was it launched inside an optimizer's step?"""
    updating = Intervals.empty()
    for signal in ("ranges", "ops"):
        rows = place.timeline[signal].of(rank=place.rank)
        rows = rows.take(rows.name.matches(_OPTIMIZER_RANGE))
        updating = updating | Intervals.of(rows.start_ns, rows.end_ns)
    calls = place.timeline.calls
    call = launch_rows(place.kernels, calls)
    if not updating or not len(calls):
        return np.zeros(len(place.kernels), dtype=bool)
    at = calls.start_ns[np.maximum(call, 0)]
    inside: Mask = (call != UNKNOWN) & (updating.overlap_ns(at, at + 1) > 0)
    return inside


def is_fused(place: Place) -> Mask:
    """One bool a row: does one launch update many tensors?"""
    return place.kernels.name.matches(_FUSED)
