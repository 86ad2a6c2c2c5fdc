"""A share of this idle cause, or of idle time in loops: the shape of findings about waits of the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from perfdoctor.detectors.affected import Affected, affected
from perfdoctor.metrics.accounting.behind_idle import Culprit, culprits, each_step_ns, host_rows, table
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.host.tensor_loops import TensorLoop, idle_behind, inside, spans_of
from perfdoctor.metrics.units import ms
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.intervals import Intervals, Nanoseconds
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Evidence, Measure, Rows, Value

Loops = Callable[[Place], list[TensorLoop]]


class Idle(Affected, frozen=True, dict=True):
    """Idle time of one cause. `pieces`: when the place that loses most was idle for it."""

    pieces: Intervals

    @property
    def times_per_step(self) -> float:
        """How many pieces of it a step has, on the worst place."""
        return len(self.pieces) / self.worst.units

    @property
    def longest_ns(self) -> int:
        """The longest piece, in ns."""
        return int(self.pieces.durations_ns.max(initial=0))

    @cached_property
    def each_step_ns(self) -> Nanoseconds:
        """Ns that each of the worst place's steps loses; all of the window where no steps are known."""
        return each_step_ns(self.worst, self.pieces)

    @property
    def steps_hit(self) -> int:
        """How many of its steps lose anything by it."""
        return int(np.count_nonzero(self.each_step_ns))

    @property
    def steps_seen(self) -> int:
        """How many steps were analysed."""
        return int(self.each_step_ns.size)

    def occurrence_values(self) -> dict[str, Value]:
        """Values of rules about what comes now and then: lost time, in how many of the steps, and the longest piece."""
        return {
            **self.time_values("lost"),
            "steps_hit": self.steps_hit,
            "steps_seen": self.steps_seen,
            "longest_ms": ms(self.longest_ns),
        }

    def occurrence_evidence(self, idle: str, times: str, meanwhile: Sequence[Culprit]) -> tuple[Evidence, ...]:
        """The evidence for these values, labelled `idle` and `times`, and what ran on the host `meanwhile`."""
        return (
            Measure(idle, self.ns, "ns"),
            Measure(times, self.times_per_step, "count"),
            Measure("longest", self.longest_ns, "ns"),
            *self.table("Innermost meanwhile", meanwhile),
        )

    def steps_losing(self, least_share: float) -> int:
        """How many of its steps lose at least this share of a step."""
        least_ns = least_share * self.worst.per_step(self.worst.window_ns)
        return int(np.count_nonzero(self.each_step_ns >= least_ns))

    def recurrence(self, least_share: float) -> str:
        """`window` where no steps are known, `once` where only one step loses that much and it may be over; else ""."""
        if not self.run.per_step:
            return "window"
        return "" if self.steps_losing(least_share) > 1 else "once"

    def recurring_values(self, least_share: float, named: Sequence[Culprit], otherwise: str) -> dict[str, Value]:
        """Values of rules about what may come once: lost time, in how many steps, and a name (`otherwise` if none)."""
        return {
            **self.time_values("lost"),
            "steps_hit": self.steps_losing(least_share),
            "steps_seen": self.steps_seen,
            "longest_ms": ms(int(self.each_step_ns.max(initial=0))),
            "name": named[0].name if named else otherwise,
        }

    def recurring_evidence(self, label: str, least_share: float) -> tuple[Measure, ...]:
        """The idle time, labelled `label`, and in how many of the steps it came."""
        in_steps = (
            Measure("steps with it", self.steps_losing(least_share), "count"),
            Measure("steps analysed", self.steps_seen, "count"),
        )
        return (Measure(label, self.ns, "ns"), *(in_steps if self.run.per_step else ()))

    def innermost(self, *signals: str) -> list[Culprit]:
        """What ran on the host meanwhile, by name.

        Args:
            *signals: The signals that are looked through: `"ops"`, `"ranges"`, `"calls"`, …

        Returns:
            What was innermost, the largest share of this idle time first.
        """
        return culprits(self.pieces, host_rows(self.worst, signals))

    def table(self, label: str, named: Sequence[Culprit]) -> tuple[Rows, ...]:
        """Names as evidence of a finding.

        Args:
            label: What the table is called.
            named: What ran meanwhile, as `innermost` returns it.

        Returns:
            One table; none where `named` is empty.
        """
        return (table(label, self.worst, named),) if named else ()


def of_cause(run: Run, cause: str, least_share: float) -> Idle | None:
    """Idle time of one cause.

    Args:
        run: The run.
        cause: The cause, a key of `Place.idle_causes`.
        least_share: The least share of the step that counts, from 0 to 1.

    Returns:
        The idle time; None where it takes less than `least_share` of the step.
    """
    time = affected(run, lambda place: place.idle_ns(cause), least_share, of_job=True)
    return Idle(run, time.ns, time.share, time.worst, time.worst.idle_causes[cause]) if time else None


def part_of_cause(run: Run, cause: str, of_place: Callable[[Place], float], least_share: float) -> Affected | None:
    """A part of this cause's idle time, in ns of each place's window; None where all of it is too little."""
    if run.job.share(lambda place: place.idle_ns(cause)) < least_share:
        return None
    return affected(run, of_place, least_share)


def of_idle(run: Run, least_share: float, pieces: Callable[[Place], Intervals], *, of_job: bool = False) -> Idle | None:
    """Idle time that the detector chooses itself.

    Args:
        run: The run.
        least_share: The least share of the step that counts, from 0 to 1.
        pieces: Which pieces of a place's idle time count. It is called once for each place.
        of_job: Does `pieces` ask for parts of the step alone? As in `affected`.

    Returns:
        The idle time; None where it takes less than `least_share` of the step.
    """
    chosen = once_per_place(pieces)
    time = affected(run, lambda place: chosen(place).total_ns, least_share, of_job=of_job)
    return Idle(run, time.ns, time.share, time.worst, chosen(time.worst)) if time else None


class IdleInLoops(Idle, frozen=True):
    """Idle time in which the host went through loops over tensors. `loops`: those of each place."""

    loops: Loops

    @property
    def of_worst(self) -> list[TensorLoop]:
        """The loops in the window of the place that loses most; at least one."""
        return inside(self.worst, self.loops(self.worst))

    @property
    def work(self) -> Mapping[tuple[int, int], Mask]:
        """The kernels that these loops launch, as a finding names them."""
        return work_of(self.run, lambda place: launches_of(place, "kernels").within(spans_of(self.loops(place))))


def of_loops(run: Run, loops: Loops, least_share: float) -> IdleInLoops | None:
    """The launch-bound idle time that these loops cost; None where it is less than this share of the step."""
    chosen = once_per_place(loops)
    found = of_idle(run, least_share, lambda place: idle_behind(place, chosen(place)))
    return IdleInLoops(run, found.ns, found.share, found.worst, found.pieces, chosen) if found else None
