"""On a run without a GPU: which ops are turns of a loop in Python, the same ones again and again?"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.grouping import counterparts, spread
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Floats, Ints, Mask
from perfdoctor.model.host_rows import outermost, own_ns
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import Frame
from perfdoctor.vocabulary.names import torch as torch_names

#: Networks whose ops are short have fewer equal layers in a row than a loop over rows, moves or time steps has turns.
FEWEST_TURNS = 32
#: Ops in one turn, at most: a policy that samples has 31, the backward pass of a recurrent cell about 40.
_MOST_OPS = 64


class OpLoops(Struct, frozen=True):
    """`time`: from the first op of each loop to the end of its last, also the ops that cut its rows out of a tensor.

    `rows`: the outermost ops in the window, by thread and start. `turns`: how many the loop of each has, 0 outside of
    loops. `handover`: Python between cutting out the rows and the first turn, or the next cut.
    """

    rows: Frame
    turns: Ints
    cuts: Mask
    time: Intervals
    handover: Intervals

    def last_turn_ns(self, when: Intervals) -> float:
        """The ops of one turn of each loop, as far as they run in `when`, in ns: one call for all takes one as well."""
        inside = self._inside(when)
        return float((self.rows.duration_ns[inside] / self.turns[inside]).sum())

    def most_turns(self, when: Intervals) -> int:
        """How many turns the longest loop in `when` has; 0 without any."""
        return int(self.turns[self._inside(when)].max(initial=0))

    def _inside(self, when: Intervals) -> Mask:
        return (self.turns > 0) & (when.overlap_ns(self.rows.start_ns, self.rows.end_ns) > 0)


@once_per_place
def op_loops(place: HostPlace) -> OpLoops:
    """The loops of the training thread in the window."""
    rows = outermost(place.rows("ops"))
    rows = rows.take(place.window.overlap_ns(rows.start_ns, rows.end_ns) > 0)
    rows = rows.take(np.lexsort((rows.start_ns, rows["thread"])))
    # For rows by thread and start a number each, equal for those of one thread in one step.
    step, thread = np.searchsorted(place.steps.bounds, rows.start_ns, side="right"), rows["thread"]
    group = np.cumsum((np.diff(thread, prepend=thread[:1]) != 0) | (np.diff(step, prepend=step[:1]) != 0))
    turns = turns_of(rows.name.codes.astype(np.int64), group)
    cuts = _cuts(rows, turns, group)
    looped = (turns > 0) | cuts
    joined = looped[:-1] & looped[1:] & (group[:-1] == group[1:])
    between = Intervals.of(rows.end_ns[:-1][joined], rows.start_ns[1:][joined])
    behind = joined & cuts[:-1]
    handover = Intervals.of(rows.end_ns[:-1][behind], rows.start_ns[1:][behind])
    return OpLoops(rows, turns, cuts, Intervals.of(rows.start_ns[looped], rows.end_ns[looped]) | between, handover)


def turns_of(name: Ints, group: Ints) -> Ints:
    """For each op how often the sequence that it is part of comes in a row, within its group; 0 where not often.

    `name`: numbers of ops, in order. `group`: equal for neighbours whose order means something. Of sequences that
    contain one another the shortest counts.
    """
    turns = np.zeros(name.size, np.int64)
    for ops in range(1, min(_MOST_OPS, name.size // FEWEST_TURNS) + 1):
        again = (name[ops:] == name[:-ops]) & (group[ops:] == group[:-ops])
        edges = np.flatnonzero(np.diff(again, prepend=False, append=False))
        first, length = edges[::2], edges[1::2] - edges[::2]
        often = length >= (FEWEST_TURNS - 1) * ops
        for start, size in zip(first[often].tolist(), (length[often] + ops).tolist(), strict=True):
            own = turns[start : start + size]
            own[own == 0] = size // ops
    return turns


def usual_ns(place: HostPlace, rows: Frame, values: Ints) -> Floats:
    """For each op the median of its counterparts' `values` over the steps; without steps its own."""
    if not place.steps.used:
        return values.astype(np.float64)
    alike, count = counterparts(rows, place.steps.bounds)
    return spread(alike, values, count).median[alike]


@once_per_place
def own_time(place: HostPlace) -> tuple[Frame, Floats]:
    """All ops of the training thread in the window, and how long each usually takes without those inside it, in ns."""
    rows = place.rows("ops")
    rows = rows.take(place.window.overlap_ns(rows.start_ns, rows.end_ns) > 0)
    return rows, usual_ns(place, rows, own_ns(rows, place.compute))


def beyond_dispatch_ns(place: HostPlace, when: Intervals, floor_ns: float) -> float:
    """What ops in `when` compute by themselves beyond the cost of dispatching one, in ns: one call computes it too."""
    rows, own = own_time(place)
    inside = (when.overlap_ns(rows.start_ns, rows.end_ns) > 0) & ~rows.name.matches(torch_names.CUTS_TENSOR)
    return float(np.maximum(own[inside] - floor_ns, 0).sum())


def _cuts(rows: Frame, turns: Ints, group: Ints) -> Mask:
    """One bool an op: does it cut a tensor, right before a loop, into what that goes over?"""
    cutting = rows.name.matches(torch_names.CUTS_TENSOR) & (turns == 0)
    others = np.flatnonzero(~cutting)
    following = np.append(others, -1)[np.searchsorted(others, np.arange(len(rows)))]
    found: Mask = cutting & (following >= 0) & (turns[following] > 0) & (group[following] == group)
    return found
