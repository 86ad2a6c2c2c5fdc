"""What does setting gradients to zero cost? What `zero_grad` launches, and the backward pass adding to the zeros."""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.kernels.sets import launching_rows
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launch_rows
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Frame, Mask
from perfdoctor.vocabulary.names import torch as torch_names


def filled_by_zero_grad(place: Place, work: Frame) -> Mask:
    """One bool a row of kernels or copies: was it launched inside a range or function of that name?"""
    zeroing = Intervals.empty()
    for signal in ("ranges", "ops", "functions"):
        rows = place.timeline[signal].of(rank=place.rank)
        rows = rows.take(rows.name.matches(torch_names.ZERO_GRAD))
        zeroing = zeroing | Intervals.of(rows.start_ns, rows.end_ns)
    calls = place.timeline.calls
    if not zeroing or not len(calls):
        return np.zeros(len(work), dtype=bool)
    call = launch_rows(work, calls)
    at = calls.start_ns[np.maximum(call, 0)]
    inside: Mask = (call != UNKNOWN) & (zeroing.overlap_ns(at, at + 1) > 0)
    return inside


def added_to_gradients(place: Place) -> Mask:
    """One bool a row of `place.kernels`: does it add a new gradient to the one that is stored?"""
    ops = place.timeline.ops.of(rank=place.rank)
    names = (torch_names.STORES_GRADIENT, torch_names.ADDS_IN_PLACE)
    storing, adding = (launching_rows(place, ops.take(ops.name.matches(name)))[0] >= 0 for name in names)
    rows: Mask = storing & adding
    return rows
