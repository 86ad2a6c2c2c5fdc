"""How much of a step without a GPU goes into ops so short that launching them is the larger part?"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.grouping import number_in_step
from perfdoctor.metrics.host.between_ops import between_ops
from perfdoctor.metrics.host.host_ops import HostOps
from perfdoctor.metrics.kernels.optimizer import host_updates
from perfdoctor.model.host_rows import outermost
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import Floats, Frame, Ints
from perfdoctor.vocabulary.names import torch as torch_names


def short_ops(place: HostPlace, shorter_than_ns: float, python_ns: float) -> HostOps:
    """Those outside the optimizer's updates, the loader and collectives, in the window.

    The Python between two of them counts as theirs where it usually takes less than `python_ns`. An op is as short as
    it usually is: the machine takes the processor away now and then, for milliseconds, and does so in proportion to the
    time that ops take. That time is theirs too.
    """
    rows = place.rows("ops")
    rows = outermost(rows.take(place.window.overlap_ns(rows.start_ns, rows.end_ns) > 0))
    updates = host_updates(place).time
    start, end = rows.start_ns, rows.end_ns
    works = (place.compute - updates).overlap_ns(start, end) == end - start
    short = works & (_usual_ns(place, rows) < shorter_than_ns)
    pair = short[:-1] & short[1:] & (rows["thread"][:-1] == rows["thread"][1:]) & (start[1:] > end[:-1])
    between = Intervals.of(end[:-1][pair], start[1:][pair]) & place.idle_causes["host_work"]
    node = rows.name.matches(torch_names.AUTOGRAD_NODE)
    pair &= node[:-1] & node[1:]  # the same for pauses in a backward pass, whose cause is unknown
    between = between | (Intervals.of(end[:-1][pair], start[1:][pair]) & place.idle_causes["unknown"])
    total_ns = int((end - start)[short].sum())
    between = between - updates - between_ops(place).usually(python_ns)
    time = Intervals.of(start[short], end[short]) | between
    return HostOps(int(np.count_nonzero(short)), total_ns, time)


def _usual_ns(place: HostPlace, rows: Frame) -> Floats:
    """For each op the median time of its counterparts, the so many-th of its name in each step; else its own."""
    if not place.steps.used:
        return rows.duration_ns.astype(np.float64)
    step = np.searchsorted(place.steps.bounds, rows.start_ns, side="right")
    name = rows.name.codes.astype(np.int64)
    number = number_in_step(name, step, rows.start_ns)
    return _medians(name * (number.max(initial=0) + 1) + number, rows.duration_ns)


def _medians(key: Ints, values: Ints) -> Floats:
    """For each value the median of those with the same key."""
    order = np.lexsort((values, key))
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    size = np.diff(np.append(first, order.size))
    low, high = values[order][first + (size - 1) // 2], values[order][first + size // 2]
    found = np.empty(order.size)
    found[order] = np.repeat(np.mean((low, high), axis=0), size)
    return found
