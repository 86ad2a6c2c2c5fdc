"""What does setting gradients to zero cost? Kernels and memsets launched inside `zero_grad`."""

from __future__ import annotations

import re

import numpy as np

from perfdoctor.metrics.breakdown import Place
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.links import launch_rows
from perfdoctor.timeline.model import UNKNOWN, Frame, Mask

_ZERO_GRAD = re.compile(r"\bzero_grad\b", re.IGNORECASE)


def filled_by_zero_grad(place: Place, work: Frame) -> Mask:
    """One bool a row of kernels or copies: was it launched inside a range or function of that name?"""
    zeroing = Intervals.empty()
    for signal in ("ranges", "ops", "functions"):
        rows = place.timeline[signal].of(rank=place.rank)
        rows = rows.take(rows.name.matches(_ZERO_GRAD))
        zeroing = zeroing | Intervals.of(rows.start_ns, rows.end_ns)
    calls = place.timeline.calls
    if not zeroing or not len(calls):
        return np.zeros(len(work), dtype=bool)
    call = launch_rows(work, calls)
    at = calls.start_ns[np.maximum(call, 0)]
    inside: Mask = (call != UNKNOWN) & (zeroing.overlap_ns(at, at + 1) > 0)
    return inside
