"""Were all ranks recorded that a collective waits for, and how long can it take at most where they were not?

A collective that ends late may have been slow, or have waited for a rank of which nothing was recorded.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.cache import once_per_run
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats, Ints


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
    """How much of the time in collectives is transfer at most, going by the shortest of the same kind, group and size.

    That one waited least: none of its kin has to take longer. Of unknown size each stands for itself.
    """
    places = [place for place in run.places if len(place.collectives)]
    if not places:
        return 1.0
    keys, took = (
        np.concatenate([_keys(place) for place in places]),
        np.concatenate([_took_ns(place) for place in places]),
    )
    _, of_class = np.unique(keys, axis=0, return_inverse=True)
    shortest = np.full(of_class.max() + 1, np.inf)
    np.minimum.at(shortest, of_class.ravel(), took)
    known = keys[:, 2] != UNKNOWN
    at_most = np.where(known, shortest[of_class.ravel()], took)
    return float(at_most.sum() / max(took.sum(), 1))


def _keys(place: Place) -> Ints:
    """Per collective in the window: codes of its kind and group, and its bytes. Frames of a run share their codes."""
    frame = place.collectives
    keys: Ints = np.stack([frame.text("kind").codes, frame.text("group").codes, frame["bytes"]], axis=1).astype(
        np.int64
    )
    return keys


def _took_ns(place: Place) -> Floats:
    took: Floats = place.collectives.duration_ns.astype(np.float64)
    return took
