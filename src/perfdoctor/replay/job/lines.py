"""What does one rank do by itself between the collectives and messages that join it to others?

Its line goes through its window. It is cut where it comes to a meeting, where it goes on after it had waited for one
with nothing to compute, and where a step ends; what it waits is no work of its own:

```
rank       │ own work │ own work ‥‥ waits │ own work │
meetings              └─── all-reduce ────┘
```

What computes while a meeting is under way goes on, so a meeting that is hidden holds nobody up. Whether a rank would
have to wait for a hidden one that is late is not recorded.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.queued import LONGEST_LATENCY_NS
from perfdoctor.metrics.communication.collectives import waited_for
from perfdoctor.metrics.communication.skew import Skew
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import JobPlace
from perfdoctor.model.timeline import UNKNOWN, Floats, Ints, Mask


class Line(Struct, frozen=True, eq=False):
    """One rank's line: its pieces in order, each with the ns of own work and of waits for unknown others.

    `comes_to`: the meeting to which the rank comes at a piece's end; `asks`: does it ask for it only then? UNKNOWN
    stands for none. `behind`: pairs of a piece and a meeting whose end begins it. `queued`: pairs of meetings, in order
    on one stream. `edges`: the pieces that end with a step.
    """

    own_ns: Floats
    unknown_ns: Floats
    comes_to: Ints
    asks: Mask
    behind: Ints
    queued: Ints
    edges: Ints

    @property
    def segment(self) -> Ints:
        """To how many meetings the rank has come before each piece."""
        return np.append(0, np.cumsum(self.comes_to != UNKNOWN)[:-1])


def between(line: Line, chosen: Mask) -> Mask:
    """One bool a piece: does it lie between two of the chosen meetings, and the rank comes to no other there?"""
    chosen_of = np.concatenate(([False], chosen[line.comes_to[line.comes_to != UNKNOWN]], [False]))
    found: Mask = chosen_of[line.segment] & chosen_of[line.segment + 1]
    return found


class _Arrivals(Struct, frozen=True, eq=False):
    """A rank's arrivals at meetings, by stream and in order: one kernel may send and receive several messages.

    `kernel`: the number of each arrival's kernel. `first`: where the arrivals of each kernel begin, and the end.
    `behind`: the kernels with one before them on their stream.
    """

    meeting: Ints
    kernel: Ints
    first: Ints
    start_ns: Ints
    end_ns: Ints
    behind: Ints

    @property
    def asks(self) -> Mask:
        """What begins as soon as the one before it is over had been asked for before: nobody knows when."""
        start_ns, end_ns = self.start_ns[self.first[:-1]], self.end_ns[self.first[:-1]]
        asks = np.ones(start_ns.size, dtype=bool)
        asks[self.behind] = start_ns[self.behind] - end_ns[self.behind - 1] > LONGEST_LATENCY_NS
        late: Mask = asks[self.kernel]
        return late

    @property
    def queued(self) -> Ints:
        own = np.flatnonzero(np.isin(self.kernel, self.behind))
        which, before = self._arrivals_of(self.kernel[own] - 1)
        return np.stack((self.meeting[before], self.meeting[own[which]]), axis=1)

    def over_last(self, moments: Ints) -> Ints:
        """Pairs of a number of `moments` and a meeting that was over last then; none where none was."""
        end_ns = self.end_ns[self.first[:-1]]
        order = np.argsort(end_ns, kind="stable")
        found = np.searchsorted(end_ns[order], moments, side="right") - 1
        known = np.flatnonzero(found >= 0)
        which, arrival = self._arrivals_of(order[found[known]])
        return np.stack((known[which], self.meeting[arrival]), axis=1)

    def _arrivals_of(self, kernels: Ints) -> tuple[Ints, Ints]:
        """The arrivals of these kernels, each with its place in `kernels`."""
        count = self.first[kernels + 1] - self.first[kernels]
        which = np.repeat(np.arange(kernels.size), count)
        within = np.arange(which.size) - np.repeat(np.cumsum(count) - count, count)
        return which, self.first[kernels][which] + within


def line_of(place: JobPlace, matched: Skew, number: int) -> Line:
    """The line of a place. `number`: which of the ranks of `matched` it is."""
    came, edges = _came(place, matched, number), place.steps.used_bounds
    waits = waited_for(place) & place.window
    known = waits & Intervals.of(came.start_ns, came.end_ns)
    nothing = np.full(len(known) + edges.size - 1, UNKNOWN)
    at = np.concatenate((np.clip(came.start_ns, edges[0], edges[-1]), known.ends, edges[1:]))
    order = np.argsort(at, kind="stable")
    begin, end = np.append(edges[0], at[order][:-1]), at[order]
    piece = np.empty(at.size, np.int64)
    piece[order] = np.arange(at.size)
    waited, over = came.over_last(known.ends).T
    goes_on = piece[came.meeting.size + waited] + 1  # the piece behind that which ends with the wait
    return Line(
        own_ns=(place.window - waits).overlap_ns(begin, end).astype(np.float64),
        unknown_ns=(waits - known).overlap_ns(begin, end).astype(np.float64),
        comes_to=np.append(came.meeting, nothing)[order],
        asks=np.append(came.asks, nothing != UNKNOWN)[order],
        behind=np.stack((goes_on, over), axis=1)[goes_on < at.size],
        queued=came.queued,
        edges=np.flatnonzero(order >= at.size - (edges.size - 1)),
    )


def _came(place: JobPlace, matched: Skew, number: int) -> _Arrivals:
    own = np.flatnonzero(matched.came.place == number)
    row, start_ns = matched.came.row[own], matched.began_ns[own]
    stream = place.recorded_collectives["stream"][row]
    order = np.lexsort((row, start_ns, stream))
    own, row, start_ns, stream = own[order], row[order], start_ns[order], stream[order]
    first = np.flatnonzero(np.diff(row, prepend=UNKNOWN))
    return _Arrivals(
        meeting=matched.came.collective[own],
        kernel=np.repeat(np.arange(first.size), np.diff(np.append(first, row.size))),
        first=np.append(first, row.size),
        start_ns=start_ns,
        end_ns=start_ns + matched.took_ns[own],
        behind=1 + np.flatnonzero(np.diff(stream[first]) == 0),
    )


def own_by_step_ns(place: JobPlace) -> Ints:
    """How long the rank does not wait for communication, in each of its used steps."""
    edges = place.steps.used_bounds
    own: Ints = (place.window - waited_for(place)).overlap_ns(edges[:-1], edges[1:])
    return own
