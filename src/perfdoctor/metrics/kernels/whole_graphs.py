"""How much of the kernels' time is CUDA graphs that were recorded as a whole, so that nobody sees what runs inside?"""

from __future__ import annotations

from perfdoctor.model.cache import once_per_run
from perfdoctor.model.run import Run

#: From this share on, what the other kernels show says little of the program.
MOSTLY_GRAPHS = 0.5


@once_per_run
def whole_graphs_share(run: Run) -> float:
    """Return their share of the time of all kernels in the analysed windows; 0 without kernels."""
    total = sum(int(place.kernel_ns.sum()) for place in run.places)
    inside = sum(int(place.kernel_ns[place.kernels["is_graph"] != 0].sum()) for place in run.places)
    return inside / max(total, 1)
