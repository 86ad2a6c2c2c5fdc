"""Which kernels belong together: launched by the same op, one behind the other on a stream, or largest of a kind?"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.accounting.host_place import outermost
from perfdoctor.model.launches import launch_rows
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask
from perfdoctor.records.findings import Rows

#: How many kernels a table of a finding names: more help nobody.
_TABLE_ROWS = 5


def largest(place: Place, rows: Mask, label: str) -> Rows:
    """The names among these rows of `place.kernels` that took most time, with count and time a step."""
    names, ns = place.kernels.name, place.kernel_ns
    total = np.bincount(names.codes[rows], weights=ns[rows], minlength=len(names.values))
    count = np.bincount(names.codes[rows], minlength=len(names.values))
    top = [code for code in np.argsort(-total, kind="stable").tolist()[:_TABLE_ROWS] if total[code]]
    table = tuple((names.values[c], count[c] / place.units, int(total[c] / place.units)) for c in top)
    return Rows(label, ("kernel", "count", "time"), ("text", "count", "ns"), table)


def launching_rows(place: Place, rows: Frame) -> tuple[Ints, Frame]:
    """For each of `place.kernels` which outermost one of these host rows launched it; UNKNOWN for none of them.

    Returns the rows' numbers and the frame (outermost rows only) into which they point.
    """
    outer = outermost(rows)
    kernels, calls = place.kernels, place.timeline.calls
    call = launch_rows(kernels, calls)
    found = np.full(len(kernels), UNKNOWN, dtype=np.int64)
    linked = np.flatnonzero(call != UNKNOWN)
    if not linked.size or not len(outer):
        return found, outer
    at, thread, process = (column[call[linked]] for column in (calls.start_ns, calls["thread"], calls["process"]))
    for process_id, thread_id in sorted(set(zip(outer["process"].tolist(), outer["thread"].tolist(), strict=True))):
        of_thread = np.flatnonzero((outer["process"] == process_id) & (outer["thread"] == thread_id))
        here = (process == process_id) & (thread == thread_id)
        place_of = np.searchsorted(outer.start_ns[of_thread], at[here], side="right") - 1
        candidate = of_thread[np.maximum(place_of, 0)]
        inside = (place_of >= 0) & (at[here] < outer.end_ns[candidate])
        found[linked[here]] = np.where(inside, candidate, UNKNOWN)
    return found, outer


def stream_order(place: Place) -> Ints:
    """The rows of `place.kernels` stream by stream, each in the order in which they ran."""
    kernels = place.kernels
    return np.lexsort((kernels.start_ns, kernels["stream"])).astype(np.int64)
