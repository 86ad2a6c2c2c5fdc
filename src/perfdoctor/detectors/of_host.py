"""What the host lacks: the shapes of findings about many small ops on a run without a GPU, and about cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from perfdoctor.detectors.affected import Affected, affected
from perfdoctor.metrics.accounting.host_place import HostPlace, host_places
from perfdoctor.metrics.host import cpu_use
from perfdoctor.metrics.host.cpu_use import Crowding
from perfdoctor.metrics.kernels.optimizer import HostOps
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Ints
from perfdoctor.records.findings import Measure


class TimeOfOps(Affected, frozen=True):
    """The time that chosen ops take, with their Python. `of_rank`: the ops of each rank."""

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
        """How long one of them takes, in ns."""
        return self.of_worst.total_ns / self.of_worst.count

    def mean_ns_of(self, time: Mapping[int, Intervals]) -> int:
        """How long these intervals of each rank take, in ns a step, on the mean of the ranks."""
        return self.run.mean(lambda place: time[place.rank].total_ns)

    @property
    def thread_time(self) -> Mapping[int, tuple[Ints, Ints]]:
        """By rank, starts and ends of this time, as a finding names it."""
        return {rank: (ops.time.starts, ops.time.ends) for rank, ops in self.of_rank.items()}


def of_host_ops(run: Run, ops: Callable[[HostPlace], HostOps], least_share: float, fewest: float) -> TimeOfOps | None:
    """The chosen ops of each rank; None where they take less than this share of the step, or a step has fewer."""
    of_rank = {place.rank: ops(place) for place in host_places(run)}
    time = affected(run, lambda place: of_rank[place.rank].time.total_ns, least_share)
    found = TimeOfOps(run, time.ns, time.share, time.worst, of_rank) if time else None
    return found if found and found.per_step >= fewest else None


def core_measures(run: Run, found: Crowding) -> tuple[Measure, ...]:
    """Who wanted cores, and who had them, as far as it is known. `found`: how crowded they were."""
    every = (
        Measure("the training thread waited for a core, a step", found.waiting_share * run.step_ns, "ns"),
        Measure("cores that the program may use", found.cores, "count"),
        Measure("cores that the program used", cpu_use.program_cores(run), "count"),
        Measure("threads of the program that waited for a core", cpu_use.waiting_threads(run), "count"),
        Measure("cores that other programs used", found.others, "count"),
        Measure("threads of a training process", cpu_use.threads_per_process(run), "count"),
        Measure("its threads taken off a core, a second", cpu_use.involuntary_switches_per_second(run), "count"),
    )
    return tuple(each for each in every if not math.isnan(each.value))
