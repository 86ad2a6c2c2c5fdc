"""Is one device slower than the others? Kernels that all ranks run equally often, compared one by one.

The same kernel is one of the same name with as many blocks: another number of blocks is another size of work.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.model.cache import kept_in_summaries
from perfdoctor.model.columns import Floats
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import Job
from perfdoctor.model.timeline import UNKNOWN

#: Where the queue is deep the first kernels of a step run before a window that begins with it, and on another rank in
#: it: of a kernel that runs often some are in or out, of one that runs seldom a part of one, a step.
_EDGE_SHARE, _EDGE_KERNELS = 0.02, 0.5


class SameKernels(Struct, frozen=True):
    """One value a place: `slowdown`, its time in these kernels as a multiple of the middle rank's, name by name and
    weighed by time; `slower_share`, how much of that time is in kernels that are slower here than in the middle.

    `share_of_compute` is how much of all kernel time is in kernels that all run equally often, `timed_share` in those
    of them that are long enough to be held against each other.
    """

    places: tuple[JobPlace, ...]
    slowdown: Floats
    slower_share: Floats
    share_of_compute: float
    timed_share: float


def same_kernels(run: Job[JobPlace], min_kernel_ns: float) -> SameKernels | None:
    """The places' time in the same kernels; None with fewer than two, with different GPUs, or without such kernels.

    Shorter kernels than `min_kernel_ns` are launch and clock noise: they are the same work, but not timed.
    """
    places = tuple(place for place in run.job.places if place.device is not None and medians_of(place))
    if len(places) < 2 or len({place.info.name for place in places}) > 1:
        return None
    medians = [medians_of(place) for place in places]
    by_all = [kernel for kernel in medians[0] if all(kernel in other for other in medians)]
    alike = [kernel for kernel in by_all if _alike([other[kernel][0] for other in medians])]
    kernels = [kernel for kernel in alike if min(other[kernel][1] for other in medians) >= min_kernel_ns]
    if not kernels:
        return None
    middle_ns = np.array([[own[kernel][1] for kernel in kernels] for own in medians])
    count = np.array([medians[0][kernel][0] for kernel in kernels])
    usual_ns = np.median(middle_ns, axis=0)
    weight = usual_ns * count / (usual_ns * count).sum()
    total_ns = max(sum(float(kernel_time_ns(place)) / place.units for place in places), 1.0)
    return SameKernels(
        places=places,
        slowdown=(middle_ns / usual_ns * weight).sum(axis=1),
        slower_share=((middle_ns > usual_ns) * weight).sum(axis=1),
        share_of_compute=sum(own[kernel][0] * own[kernel][1] for own in medians for kernel in alike) / total_ns,
        timed_share=float((middle_ns * count).sum() / total_ns),
    )


def is_slower_at_the_same(run: Job[JobPlace], place: JobPlace, tolerance: float, at_least: float) -> bool:
    """Does this device take longer (`at_least`, a share) for the same kernels, which are all but `tolerance` of all?

    Without the number of their blocks it is not known whether they are the same.
    """
    found = same_kernels(run, 0.0)
    if (
        found is None
        or any(blocks == UNKNOWN for _, blocks in medians_of(place))
        or place not in found.places
        or found.share_of_compute < 1 - tolerance
    ):
        return False
    return bool(found.slowdown[found.places.index(place)] >= 1 + at_least)


def _alike(counts: list[float]) -> bool:
    """Are these counts a step equal, but for what lies across the edges of a window?"""
    return max(counts) - min(counts) <= max(_EDGE_KERNELS, _EDGE_SHARE * max(counts))


@kept_in_summaries
def kernel_time_ns(place: Place) -> int:
    """Ns of all kernels of a place in its window; those that overlap each count in full."""
    return int(place.kernel_ns.sum())


@kept_in_summaries
def medians_of(place: Place) -> dict[tuple[str, int], tuple[float, float]]:
    """By name and blocks: how often a kernel ran a step on this device, and its median time in ns."""
    if not len(place.kernels):
        return {}
    names, blocks, took = place.kernels.name, place.kernels["blocks"], place.kernels.duration_ns
    order = np.lexsort((blocks, names.codes))
    codes, sizes = names.codes[order], blocks[order]
    edges = np.flatnonzero((np.diff(codes) != 0) | (np.diff(sizes) != 0)) + 1
    pieces = np.split(took[order], edges)
    first = np.concatenate(([0], edges)).tolist()
    return {
        (names.values[codes[at]], int(sizes[at])): (piece.size / place.units, float(np.median(piece)))
        for at, piece in zip(first, pieces, strict=True)
    }
