"""How much longer did the host take because the profiler recorded Python's stacks?"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.accounting.driving_threads import driving_threads
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run

#: What torch.profiler takes with `with_stack=True` for a call of a Python function or of one built in: 200 to 520 ns
#: more than without it (PyTorch 2.13, three loops of 200,000 calls each), 340 ns in the middle.
FRAME_NS = 340
#: From this share of the time on, what the host seems to take says little of what it takes without a profiler.
MOST_SHARE = 0.1


@once_per_run
def stack_cost(run: Run) -> tuple[int, float]:
    """Python frames recorded on threads that launch work, and the share of the window that recording them took.

    Of the place where it is most; (0, 0.0) without stacks.
    """
    return max((_of_place(place) for place in run.places), key=lambda each: each[1], default=(0, 0.0))


def _of_place(place: Place) -> tuple[int, float]:
    frames = place.timeline["functions"].of(rank=place.rank)
    frames = frames.take(np.isin(frames["thread"], driving_threads(place.timeline, place.rank)))
    count = int(np.count_nonzero(place.window.overlap_ns(frames.start_ns, frames.start_ns + 1)))
    return count, count * FRAME_NS / max(place.window_ns, 1)
