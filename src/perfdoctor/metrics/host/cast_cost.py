"""What does a cast cost the host: an op that C++ calls, with one kernel?

As many times its launch as in public recordings, but no more than in any of them, nor than the host takes here from
one launch to the next:
`aten::to` around one kernel took 3.1 to 5.5 times as long as the call that launches it, 4.0 in the middle (80 % of, and
the median of, nine recordings by torch.profiler on V100, A100, H100 and MI300X; 13 to 32 µs). What a launch waits for
room in a full queue is no part of it; nor are pauses, in which the host does something else.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfdoctor.metrics.accounting.queued import LONGEST_LAUNCH_NS
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import distinct, occurring
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN

#: Times a launch, where little is saved and likely.
_LAUNCHES = {"low": 5.5, "likely": 4.0}
#: The most in any of these recordings.
_LONGEST_NS = 32_000


@once_per_place
def cast_cost_ns(place: Place) -> Mapping[str, float]:
    """Ns, where little is saved (`low`) and likely; 0 where no launch was recorded."""
    calls, call = place.timeline.calls, launches_of(place, "kernels").call
    call = distinct(call[call != UNKNOWN])
    took = calls.duration_ns[call]
    usual = took[took <= LONGEST_LAUNCH_NS]
    if not usual.size:
        return dict.fromkeys(_LAUNCHES, 0.0)
    launch_ns = float(np.median(usual))
    start, end, thread = (calls[column][call] for column in ("start_ns", "end_ns", "thread"))
    if len(occurring(thread)) > 1 or len(occurring(calls["process"])) > 1:  # else they are in their order
        order = np.lexsort((start, thread, calls["process"][call]))
        start, end, thread = start[order], end[order], thread[order]
    between = (start[1:] - end[:-1])[thread[1:] == thread[:-1]] + launch_ns
    between = between[(between > 0) & (between <= LONGEST_LAUNCH_NS)]
    most = min(float(np.median(between)) if between.size else np.inf, _LONGEST_NS)
    return {case: min(times * launch_ns, most) for case, times in _LAUNCHES.items()}
