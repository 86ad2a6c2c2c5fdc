"""How long does a step of all ranks take, and how long if some of their work took otherwise?

A *node* is a piece of a rank's own work, the moment at which the last member of a *meeting* has come (a collective, or
a message with its sender and its receiver), or the transfer behind it. A node begins when all that it comes after is
over. No clocks are compared. Many variants of the durations are simulated together: a line a node, a column a variant.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from perfdoctor.model.timeline import UNKNOWN, Floats, Ints, Mask

#: Durations, or ends: a line a node, a column a variant.
Variants = npt.NDArray[np.float64]
#: What comes after what at one depth: the nodes, all that they come after, and where each one's part of that begins.
_Round = tuple[Ints, Ints, Ints]


class JobGraph(Struct, frozen=True, eq=False, dict=True):
    """The work of all ranks in their steps, and what comes after what: node `after[k]` after node `before[k]`.

    `duration_ns`: of each node. `kind`: which work it is, whoever does it; UNKNOWN of the moments of meetings, which
    take no time. `rank` and `stage`: whose work, or transfer, it is; UNKNOWN where it is nobody's. `peers`: own work
    with one number is the same work of several ranks; UNKNOWN where it has no peers. `steps` steps lie, all together,
    between the ends of the nodes `first` and `last`; UNKNOWN is the begin of everything.
    """

    duration_ns: Floats
    kind: Ints
    is_transfer: Mask
    rank: Ints
    stage: Ints
    peers: Ints
    after: Ints
    before: Ints
    first: Ints
    last: Ints
    steps: int

    def __len__(self) -> int:
        return int(self.duration_ns.size)

    @cached_property
    def _depth(self) -> Ints:
        """How many others come one behind the other before each node. Raises ValueError if one waits for itself."""
        depth, missing = np.zeros(len(self), np.int64), np.bincount(self.after, minlength=len(self))
        order = np.argsort(self.before, kind="stable")
        behind, edges = self.after[order], np.searchsorted(self.before[order], np.arange(len(self) + 1))
        ready, done, now = np.flatnonzero(missing == 0), 0, 0
        while ready.size:
            depth[ready] = now
            count = edges[ready + 1] - edges[ready]
            first = np.repeat(edges[ready] + count - np.cumsum(count), count)
            freed, by = np.unique(behind[first + np.arange(first.size)], return_counts=True)
            missing[freed] -= by
            done, now, ready = done + ready.size, now + 1, freed[missing[freed] == 0]
        if done < len(self):
            raise ValueError("work waits for itself")
        return depth

    @cached_property
    def _rounds(self) -> list[_Round]:
        """The nodes by depth; those that come after nothing are left out."""
        place = np.empty(len(self), np.int64)
        place[np.argsort(self._depth, kind="stable")] = np.arange(len(self))
        order = np.argsort(place[self.after], kind="stable")
        after, before = self.after[order], self.before[order]
        begins = np.flatnonzero(np.diff(after, prepend=UNKNOWN))
        nodes = after[begins]
        edges = np.flatnonzero(np.diff(self._depth[nodes], prepend=UNKNOWN, append=UNKNOWN))
        first = np.append(begins, after.size)
        return [
            (nodes[begin:end], before[first[begin] : first[end]], begins[begin:end] - first[begin])
            for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ]

    def ends_ns(self, duration_ns: Variants) -> Variants:
        """When each node ends, where all that comes after nothing begins at 0."""
        ends: Variants = duration_ns.copy()
        for nodes, before, begins in self._rounds:
            ends[nodes] += np.maximum.reduceat(ends[before], begins, axis=0)
        return ends

    def step_ns(self, duration_ns: Variants) -> Floats:
        """The mean step of each variant, in ns."""
        ends = np.vstack((self.ends_ns(duration_ns), np.zeros(duration_ns.shape[1])))  # of UNKNOWN, the last line
        steps_ns: Floats = (ends[self.last] - ends[self.first]).sum(axis=0) / self.steps
        return steps_ns
