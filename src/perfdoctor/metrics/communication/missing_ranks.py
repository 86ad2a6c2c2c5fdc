"""Were all ranks recorded that a collective waits for, and how long can it take at most where they were not?

A collective that ends late may have been slow, or have waited for a rank of which nothing was recorded.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.grouping import combined
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN


@once_per_run
def ranks_of_job(run: Run) -> int:
    """How many ranks the job had, as far as that was recorded: its size, or the largest group that communicates."""
    sizes = run.timeline.collectives["group_size"]
    return max(run.timeline.world_size, int(sizes.max(initial=0)), len(run.ranks))


def ranks_missing(run: Run) -> int:
    """How many of them were not recorded; 0 where none is known to be missing."""
    return ranks_of_job(run) - len(run.ranks)


@once_per_run
def largest_transfer_share(run: Run) -> float:
    """The most of the time in collectives that may be transfer (0-1), by the shortest of the same kind, group and size.

    That one waited least: none of its kin has to take longer. One of unknown size stands for itself.
    """
    frames = [place.collectives for place in run.places if len(place.collectives)]
    if not frames:
        return 1.0
    took = np.concatenate([frame.duration_ns for frame in frames]).astype(np.float64)
    size = np.concatenate([frame["bytes"] for frame in frames])
    # Frames of a run share the codes of their texts.
    kind, group = (np.concatenate([frame.text(name).codes for frame in frames]) for name in ("kind", "group"))
    alike, first = combined(kind, group, size)
    shortest = np.full(first.size, np.inf)
    np.minimum.at(shortest, alike, took)
    at_most = np.where(size != UNKNOWN, shortest[alike], took)
    return float(at_most.sum() / max(took.sum(), 1))
