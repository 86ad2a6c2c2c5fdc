"""One process drives several GPUs: do they share the work evenly, and is it nn.DataParallel that divides it?"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.kernels.same_kernels import medians_of
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.vocabulary.names import torch as torch_names


class Team(Struct, frozen=True):
    """The devices of one rank that compute. `extra_ns`: the busiest one's compute a step beyond the mean."""

    rank: int
    places: tuple[Place, ...]
    busiest: Place
    mean_ns: int
    extra_ns: int

    def work_ns(self, slower_at_most: float) -> int:
        """The extra ns without those that the same kernels take longer here than on the others: a slower device.

        A kernel that takes longer by more than this share has more to do: clocks do not differ so much.
        """
        others = [medians_of(other) for other in self.places if other is not self.busiest]
        longer = 0.0
        for kernel, (count, own_ns) in medians_of(self.busiest).items():
            elsewhere = [other[kernel][1] for other in others if kernel in other]
            if elsewhere and own_ns <= (1 + slower_at_most) * np.median(elsewhere):
                longer += count * (own_ns - float(np.median(elsewhere)))
        return self.extra_ns - max(round(longer), 0)


def others_busy(run: Run, place: Place) -> Intervals:
    """When another device of the same process was at work: what is queued here may wait for that."""
    busy = Intervals.empty()
    for other in run.places:
        if other.rank == place.rank and other.device != place.device:
            busy = busy | other.compute | other.copying | other.communication
    return busy


def teams(run: Run, least_part: float) -> list[Team]:
    """Ranks with several devices, without those that compute less than this part of what the busiest does."""
    found = []
    for rank in sorted({place.rank for place in run.places}):
        mine = [place for place in run.places if place.rank == rank and place.device is not None]
        if not mine:
            continue
        busiest = max(mine, key=_compute_ns)
        working = tuple(place for place in mine if _compute_ns(place) >= least_part * _compute_ns(busiest))
        mean = sum(_compute_ns(place) for place in working) // len(working)
        if len(working) > 1:
            found.append(Team(rank, working, busiest, mean, _compute_ns(busiest) - mean))
    return found


def _compute_ns(place: Place) -> int:
    return place.per_step(place.compute.total_ns)


def is_data_parallel(run: Run, rank: int) -> bool:
    """Did this rank run torch.nn.DataParallel?"""
    return any(
        run.timeline[signal].of(rank=rank).name.matches(torch_names.DATA_PARALLEL).any()
        for signal in ("ranges", "ops", "functions")
    )
