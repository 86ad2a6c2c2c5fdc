"""Do the steps launch the very same kernels in the same order, so that one capture could stand for all?"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from perfdoctor.model.launches import launches, recorded_launches
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints

#: Work in the queue when the recording began has no call. Where more than half has none, calls were not recorded.
_LINKED_SHARE = 0.5


class Repetition(Struct, frozen=True):
    """`same` of `steps` steps launch the most frequent sequence, of `kernels` kernels. Known grids count."""

    steps: int
    same: int
    kernels: int


def repetition(place: Place) -> Repetition:
    """Steps held against each other: name, grid and block of each kernel and collective, stream by stream."""
    work, numbers = [], []
    for signal in ("kernels", "collectives"):  # of the whole recording: a step's work may run when the next has begun
        frame, step = place.recorded(signal), _launching_step(place, signal)
        if place.asked is not None:  # of a range only what lies in its executions
            inside = place.window.overlap_ns(frame.start_ns, frame.end_ns) > 0
            frame, step = frame.take(inside), step[inside]
        work.append(frame)
        numbers.append(step)
    signatures = Counter(
        _signature([np.flatnonzero(step == index) for step in numbers], work)
        for index in range(place.steps.first, place.steps.last)
    )
    if not signatures:
        return Repetition(0, 0, 0)
    (_, kernels), same = signatures.most_common(1)[0]
    return Repetition(signatures.total(), same, kernels)


def _launching_step(place: Place, signal: str) -> Ints:
    """The step that launched each row, UNKNOWN before the recording; without calls the one in which it ran."""
    bounds, every, launched = place.steps.bounds, launches(place), recorded_launches(place, signal)
    ran_in = (np.searchsorted(bounds, place.recorded(signal).start_ns, side="right") - 1).astype(np.int64)
    first = np.minimum(np.searchsorted(place.work.start_ns, bounds), len(place.work) - 1)
    if not ran_in.size or not every.known[first].all() or np.mean(launched.known) < _LINKED_SHARE:
        return ran_in
    begun = every.at_ns[first]
    step = np.searchsorted(begun, launched.at_ns, side="right") - 1
    return np.where(launched.known, step, UNKNOWN) if (np.diff(begun) > 0).all() else ran_in


def _signature(rows_of_step: list[Ints], work: list[Frame]) -> tuple[bytes, int]:
    """What one step ran, as bytes that are equal for equal steps, and the number of rows."""
    parts, count = [], 0
    for rows, frame in zip(rows_of_step, work, strict=True):
        ordered = rows[np.argsort(frame["stream"][rows], kind="stable")]
        # Equal names may stand under two codes after a merge; one rank's rows come from one recording, so no matter.
        columns = [frame.name.codes[ordered].astype(np.int64)]
        columns += [frame[c][ordered] for c in ("stream", "blocks", "threads_per_block") if c in frame.columns]
        parts.append(np.concatenate(columns).tobytes())
        count += ordered.size
    return b"|".join(parts), count
