"""How much of a step without a GPU goes into ops so short that launching them is the larger part, and between ops?

Time between two ops is Python, or another process on the same core. The second comes at random: so a stretch is as long
as it usually is, the median over the steps of the stretches in front of the same op.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.grouping import counterparts, spread
from perfdoctor.metrics.host.op_loops import op_loops, own_time, usual_ns
from perfdoctor.metrics.kernels.optimizer import HostOps, host_updates
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Floats, numbered
from perfdoctor.model.host_rows import outermost
from perfdoctor.model.intervals import Intervals
from perfdoctor.vocabulary.names import torch as torch_names

#: A median of fewer steps is one of them.
_FEWEST_STEPS = 3
#: What is in fewer of the steps is not usual.
_OFTEN = 0.5


class Between(Struct, frozen=True):
    """Stretches in which no thread runs an op and the training thread runs unexplained code, in their order.

    `usual_ns`: how long each is in the median of all steps; 0 where too few steps are known for a median.
    """

    pieces: Intervals
    usual_ns: Floats

    def usually(self, at_least_ns: float) -> Intervals:
        """The stretches that usually take so long."""
        long = self.usual_ns >= at_least_ns
        return Intervals(self.pieces.starts[long], self.pieces.ends[long])

    def once(self, at_least_ns: float) -> Intervals:
        """The stretches that take so long themselves, however long they usually take."""
        long = self.pieces.durations_ns >= at_least_ns
        return Intervals(self.pieces.starts[long], self.pieces.ends[long])


@once_per_place
def between_ops(place: HostPlace) -> Between:
    """The stretches of the window outside of the optimizer's updates and of loops that hand over their rows.

    What updates and loops do between their ops is their own.
    """
    ops = place.timeline.ops.of(rank=place.rank)
    own = host_updates(place).time | op_loops(place).handover
    pieces = place.idle_causes["host_work"] - ops.intervals - own
    if place.steps.used < _FEWEST_STEPS or not pieces:
        return Between(pieces, np.zeros(len(pieces)))
    # For each piece a number, equal where the op behind it is the so many-th of its name in its step.
    own_ops = outermost(place.rows("ops"))
    key = np.append(counterparts(own_ops, place.steps.bounds)[0], -1)  # the last: no op follows
    following = np.searchsorted(own_ops.start_ns, pieces.ends, side="left")
    different, before = numbered(key[following])
    known = spread(before, pieces.durations_ns, different.size)
    often = known.count >= _OFTEN * place.steps.used
    return Between(pieces, np.where(often, np.nan_to_num(known.median), 0.0)[before])


def short_ops(place: HostPlace, shorter_than_ns: float, python_ns: float) -> HostOps:
    """The short ops of the window outside the optimizer's updates, the loader and collectives.

    The Python between two of them counts as theirs where it usually takes less than `python_ns`. An op is as short as
    it usually is: the machine takes the processor away now and then, for milliseconds, and does so in proportion to the
    time that ops take. That time is theirs too. Cutting a tensor into the rows of a loop is many short ops in one.
    """
    loops, updates = op_loops(place), host_updates(place).time
    rows = loops.rows
    start, end = rows.start_ns, rows.end_ns
    works = (place.compute - updates).overlap_ns(start, end) == end - start
    short = works & (loops.cuts | (usual_ns(place, rows, rows.duration_ns) < shorter_than_ns))
    pair = short[:-1] & short[1:] & (rows["thread"][:-1] == rows["thread"][1:]) & (start[1:] > end[:-1])
    between = Intervals.of(end[:-1][pair], start[1:][pair]) & place.idle_causes["host_work"]
    node = rows.name.matches(torch_names.AUTOGRAD_NODE)
    pair &= node[:-1] & node[1:]  # the same for pauses in a backward pass, whose cause is unknown
    between = between | (Intervals.of(end[:-1][pair], start[1:][pair]) & place.idle_causes["unknown"])
    total_ns = int((end - start)[short].sum())
    between = between - updates - between_ops(place).usually(python_ns)
    time = Intervals.of(start[short], end[short]) | between
    return HostOps(int(np.count_nonzero(short)), total_ns, time)


class Dispatch(Struct, frozen=True):
    """Ops of the window that compute next to nothing, outside of loops, also those of the optimizer.

    `count` ops, also those inside others; `own_ns` is their time, `between_ns` the short stretches of Python between
    ops, and `all_own_ns` the time of all ops, also in loops.
    """

    count: int
    own_ns: float
    between_ns: int
    all_own_ns: float

    @property
    def total_ns(self) -> float:
        return self.own_ns + self.between_ns

    @property
    def share_of_ops(self) -> float:
        return self.own_ns / self.all_own_ns if self.all_own_ns else 0.0


@once_per_place
def dispatch(place: HostPlace, floor_ns: float, python_ns: float) -> Dispatch:
    """What a step takes that does not grow with its batch, as far as ops of this program show it."""
    rows, own = own_time(place)
    loops = op_loops(place).time
    free = loops.overlap_ns(rows.start_ns, rows.end_ns) == 0
    short = free & (own > 0) & (own < floor_ns)
    long = between_ops(place).usually(python_ns) | between_ops(place).once(python_ns)
    between = place.idle_causes["host_work"] - loops - long
    return Dispatch(int(np.count_nonzero(short)), float(own[short].sum()), between.total_ns, float(own.sum()))
