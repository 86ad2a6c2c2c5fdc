"""Which of some kernels follow each other on a stream, with no other kernel between them?"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.kernels.sets import stream_order
from perfdoctor.model.columns import Floats, Mask
from perfdoctor.model.place import Place


def merged_runs_ns(place: Place, rows: Mask, breaks: Mask | None = None) -> float:
    """What is saved, in ns for the window, if each run of these rows of `place.kernels` takes as long as its longest.

    Short kernels are start and end, whatever they compute. `breaks`: rows that begin a run of their own, and end it.
    """
    order = stream_order(place)
    if not order.size:
        return 0.0
    stream, chosen = place.kernels["stream"][order], rows[order]
    begins = np.ones(order.size, dtype=bool)
    begins[1:] = ~chosen[1:] | ~chosen[:-1] | (stream[1:] != stream[:-1])
    if breaks is not None:
        alone = breaks[order]
        begins[1:] |= alone[1:] | alone[:-1]
    first = np.flatnonzero(begins)
    ns: Floats = np.where(chosen, place.kernel_ns[order], 0).astype(float)
    return float((np.add.reduceat(ns, first) - np.maximum.reduceat(ns, first)).sum())
