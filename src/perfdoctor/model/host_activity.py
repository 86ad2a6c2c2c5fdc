"""What did the threads do that drive one rank's device?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfdoctor.model.columns import Ints
from perfdoctor.model.intervals import Intervals


@dataclass(frozen=True)
class HostActivity:
    """What the threads that drive one rank's device were doing, as sets of instants.

    `explicit` maps a cause to the instants in which a range, op or call proves it, in order of precedence.
    `once`: what comes once, loading a kernel at its first launch and capturing a graph.
    `visible` is any other range, op or function that is not a whole step or more; `launching` the stretches in which
    work was launched without a longer pause; `blocking` the rows of `timeline.calls` whose names say that they wait for
    the device. `in_view` says whether anything but calls was recorded of the host, `ops_recorded` whether the
    framework's ops were, `graph_nodes_recorded` whether CUDA graphs show their kernels.
    """

    explicit: Mapping[str, Intervals]
    profiler: Intervals
    launching: Intervals
    once: Intervals
    files: Intervals
    visible: Intervals
    between_steps: Intervals
    blocking: Ints
    ops_recorded: bool
    in_view: bool
    graph_nodes_recorded: bool = True
