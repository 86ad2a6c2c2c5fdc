"""One process drives several GPUs: do they share the work evenly, and by what?"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run

#: torch.nn.DataParallel marks its forward pass so; DistributedDataParallel has a longer name.
_DATA_PARALLEL = re.compile(
    r"^DataParallel\.forward$|^nn\.Module: DataParallel(_\d+)?$|parallel/data_parallel\.py\(\d+\): forward"
)


@dataclass(frozen=True)
class Team:
    """The devices of one rank that compute. `extra_ns`: the busiest one's compute a step beyond the mean."""

    rank: int
    places: tuple[Place, ...]
    busiest: Place
    mean_ns: int
    extra_ns: int


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
        run.timeline[signal].of(rank=rank).name.matches(_DATA_PARALLEL).any()
        for signal in ("ranges", "ops", "functions")
    )
