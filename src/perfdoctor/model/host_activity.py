"""What did the threads do that drive one rank's device?"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from perfdoctor.model.columns import Ints
from perfdoctor.model.intervals import Intervals


class HostActivity(Struct, frozen=True):
    """The activities of the threads that drive one rank's device, as sets of instants.

    `explicit` maps a cause to the instants in which a range, op or call proves it, in order of precedence.
    `once`: what comes once, loading code (at a kernel's first launch, most often) and capturing a graph; `first_ops`:
    the first runs of ops, outside of launching, where they took far longer than the later ones.
    `visible` is any other range, op or function that is not a whole step or more; `in_system` any call of the operating
    system, None where none was recorded of these threads; `launching` the stretches in which
    work was launched without a longer pause; `blocking` the rows of `timeline.calls` whose names say that they wait for
    the device. `in_view` says whether anything but calls was recorded of the host, `ops_recorded` whether the
    framework's ops were, `graph_nodes_recorded` whether CUDA graphs show their kernels.
    """

    explicit: Mapping[str, Intervals]
    profiler: Intervals
    launching: Intervals
    once: Intervals
    first_ops: Intervals
    files: Intervals
    visible: Intervals
    between_steps: Intervals
    blocking: Ints
    ops_recorded: bool
    in_view: bool
    graph_nodes_recorded: bool = True
    in_system: Intervals | None = None
