"""On a run without a GPU: how long does Python take from one op to the next, at the same place of each step?

Time between two ops is Python, or another process on the same core. The second comes at random: so a stretch is as long
as it usually is, the median over the steps of the stretches in front of the same op.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.grouping import spread
from perfdoctor.metrics.host.op_loops import counterparts, op_loops
from perfdoctor.metrics.kernels.optimizer import host_updates
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Floats, Ints
from perfdoctor.model.host_rows import outermost
from perfdoctor.model.intervals import Intervals

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
    before = _before_which_op(place, pieces)
    known = spread(before, pieces.durations_ns, int(before.max()) + 1)
    often = known.count >= _OFTEN * place.steps.used
    return Between(pieces, np.where(often, np.nan_to_num(known.median), 0.0)[before])


def _before_which_op(place: HostPlace, pieces: Intervals) -> Ints:
    """For each piece a number: equal where the op behind it is the so many-th of its name in its step."""
    own = outermost(place.rows("ops"))
    key = np.append(counterparts(place, own), -1)  # the last: no op follows
    following = np.searchsorted(own.start_ns, pieces.ends, side="left")
    _, group = np.unique(key[np.minimum(following, len(own))], return_inverse=True)
    return group.astype(np.int64)
