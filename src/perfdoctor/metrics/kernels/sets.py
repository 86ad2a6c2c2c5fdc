"""Which kernels belong together: one behind the other on a stream, or largest of a kind?"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Floats, Ints, Mask
from perfdoctor.records.findings import Rows

#: How many kernels a table of a finding names.
_TABLE_ROWS = 5


def largest(place: Place, rows: Mask, label: str) -> Rows:
    """The names among these rows of `place.kernels` that took most time, with count and time a step."""
    names, ns = place.kernels.name, place.kernel_ns
    total = np.bincount(names.codes[rows], weights=ns[rows], minlength=len(names.values))
    count = np.bincount(names.codes[rows], minlength=len(names.values))
    top = [code for code in np.argsort(-total, kind="stable").tolist()[:_TABLE_ROWS] if total[code]]
    table = tuple((names.values[c], count[c] / place.units, int(total[c] / place.units)) for c in top)
    return Rows(label, ("kernel", "count", "time"), ("text", "count", "ns"), table)


def stream_order(place: Place) -> Ints:
    """The rows of `place.kernels` stream by stream, each in the order in which they ran."""
    kernels = place.kernels
    return np.lexsort((kernels.start_ns, kernels["stream"])).astype(np.int64)


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
