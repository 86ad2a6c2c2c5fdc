"""Many small ops on the training thread of a run without a GPU: the shape of findings about what they take there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfdoctor.detectors.affected import Affected, affected
from perfdoctor.metrics.accounting.host_place import HostPlace, host_places
from perfdoctor.metrics.kernels.optimizer import HostOps
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Ints


class TimeOfOps(Affected, frozen=True):
    """The time that these ops take, with their Python. `of_rank`: the ops of each rank."""

    of_rank: Mapping[int, HostOps]

    @property
    def of_worst(self) -> HostOps:
        return self.of_rank[self.worst.rank]

    @property
    def per_step(self) -> float:
        """How many of them a step has, on the worst rank."""
        return self.of_worst.count / self.worst.units

    @property
    def mean_ns(self) -> float:
        """How long one of them takes."""
        return self.of_worst.total_ns / self.of_worst.count

    def mean_ns_of(self, time: Mapping[int, Intervals]) -> int:
        """What these intervals of each rank take a step, on the mean of the ranks."""
        return self.run.mean(lambda place: time[place.rank].total_ns)

    @property
    def thread_time(self) -> Mapping[int, tuple[Ints, Ints]]:
        """By rank, starts and ends of this time, as a finding names it."""
        return {rank: (ops.time.starts, ops.time.ends) for rank, ops in self.of_rank.items()}


def of_host_ops(run: Run, ops: Callable[[HostPlace], HostOps], least_share: float, fewest: float) -> TimeOfOps | None:
    """These ops of each rank; None where they take less than this share of the step, or a step has fewer of them."""
    of_rank = {place.rank: ops(place) for place in host_places(run)}
    time = affected(run, lambda place: of_rank[place.rank].time.total_ns, least_share)
    found = TimeOfOps(run, time.ns, time.share, time.worst, of_rank) if time else None
    return found if found and found.per_step >= fewest else None
