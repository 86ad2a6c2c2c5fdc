"""What waits for what in the steps of one device? Calls on the host and work on the device, as a graph that repeats.

A *node* is a call on a thread that drives the device, the end of a call that waits, or one piece of device work. It
ends `duration_ns` after the last of up to three nodes that it depends on, each with a lag:

```
host call      its predecessor on the host (program order; another thread where that woke this one) + the time between
               · where a loader has a pace of its own, the batch before + that pace
end of a wait  the call's beginning · the device work that it waited for + the way back
device work    its predecessor on the stream · its launch + latency · work of another stream (events, inferred)
```

The nodes are those of the window's steps, by when they were *launched*. Simulated several times in a row, they show the
steady step: what is first on a stream depends on what was last there before.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Ints, Mask

HOST, WAIT_END, WORK = 0, 1, 2

#: No dependency.
NOTHING = -1


class Graph(Struct, frozen=True):
    """Nodes in an order in which each comes after all it depends on. Arrays have one entry a node, times are in ns.

    `depends[k]` (k = 0, 1, 2) is the node depended on, NOTHING, or a node of the repetition before where `before[k]`.
    `work_row` is the row of DeviceWork, `call_row` that of `timeline.calls`; UNKNOWN on other nodes. What was recorded
    stays as it is in every edit.
    """

    place: Place
    kind: npt.NDArray[np.int8]
    recorded_start_ns: Ints
    recorded_end_ns: Ints
    duration_ns: Ints
    extra_ns: Ints
    depends: tuple[Ints, Ints, Ints]
    before: tuple[Mask, Mask, Mask]
    lag_ns: tuple[Ints, Ints, Ints]
    work_row: Ints
    call_row: Ints
    #: The recorded host time in front of a HOST node: its first lag, and what it waited there for the loader.
    gap_start_ns: Ints
    gap_end_ns: Ints
    #: How long the loader made a HOST node wait, where the loader has a pace of its own: the node's second dependency.
    loader_wait_ns: Ints
    period_ns: int
    units: int
    #: When the host waited for such a loader.
    awaited: Intervals = field(default_factory=Intervals.empty)
    #: Host time that edits have taken out, and which share of it.
    gone: tuple[tuple[Intervals, float], ...] = ()
    #: Nodes of collectives that all ranks recorded, in their order; and how long each takes once all are there.
    collectives: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    transfer_ns: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    #: How far this rank's clock is ahead of the first one's.
    clock_ns: int = 0
    #: For how many places of the job it stands (`Run.stands_for`).
    stands_for: int = 1

    def __len__(self) -> int:
        return int(self.kind.size)

    @property
    def first_work(self) -> int:
        """The first row of DeviceWork in the graph, 0 where none is."""
        return int(self.work_row[self.kind == WORK].min()) if (self.kind == WORK).any() else 0

    def of_work(self, rows: Mask) -> Mask:
        """One bool a node: is it a piece of work among these rows of DeviceWork?"""
        found: Mask = (self.kind == WORK) & rows[np.maximum(self.work_row, 0)]
        return found

    @property
    def step_ns(self) -> float:
        """The recorded step, in ns."""
        return self.period_ns / self.units
