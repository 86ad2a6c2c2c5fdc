"""A share of this idle cause: the shape of findings about time in which the device waits for one thing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from perfdoctor.detectors.affected import Affected, affected, affected_in_job
from perfdoctor.metrics.accounting.behind_idle import Culprit, culprits, each_step_ns, host_rows, table
from perfdoctor.metrics.units import ms
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.intervals import Intervals, Nanoseconds
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Evidence, Measure, Rows, Value


class Idle(Affected, frozen=True, dict=True):
    """Idle of one cause. `pieces`: when the place that loses most was idle for it."""

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
        """What each of the worst place's steps loses; all of the window where no steps are known."""
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
        """The numbers of rules about what comes now and then: how much, in how many of the steps, and the longest."""
        return {
            **self.time_values("lost"),
            "steps_hit": self.steps_hit,
            "steps_seen": self.steps_seen,
            "longest_ms": ms(self.longest_ns),
        }

    def occurrence_evidence(self, idle: str, times: str, meanwhile: Sequence[Culprit]) -> tuple[Evidence, ...]:
        """The same as evidence, `idle` and `times` being the labels, and what ran on the host meanwhile."""
        return (
            Measure(idle, self.ns, "ns"),
            Measure(times, self.times_per_step, "count"),
            Measure("longest", self.longest_ns, "ns"),
            *self.table("Innermost meanwhile", meanwhile),
        )

    @property
    def longest_in_a_step_ns(self) -> int:
        return int(self.each_step_ns.max(initial=0))

    def steps_losing(self, least_share: float) -> int:
        """How many of its steps lose at least this share of a step."""
        least_ns = least_share * self.worst.per_step(self.worst.window_ns)
        return int(np.count_nonzero(self.each_step_ns >= least_ns))

    def recurrence(self, least_share: float) -> str:
        """`window` where no steps are known, `once` where only one step loses that much: then it may be over; or ""."""
        if not self.run.per_step:
            return "window"
        return "" if self.steps_losing(least_share) > 1 else "once"

    def recurring_values(self, least_share: float, named: Sequence[Culprit], otherwise: str) -> dict[str, Value]:
        """The numbers of rules about what may come once: in which steps it came. `name`: the first, or `otherwise`."""
        return {
            **self.time_values("lost"),
            "steps_hit": self.steps_losing(least_share),
            "steps_seen": self.steps_seen,
            "longest_ms": ms(self.longest_in_a_step_ns),
            "name": named[0].name if named else otherwise,
        }

    def recurring_evidence(self, label: str, least_share: float) -> tuple[Measure, ...]:
        """How much idle time it is, and in how many of the steps it came."""
        return (
            Measure(label, self.ns, "ns"),
            *(_in_steps(self.steps_losing(least_share), self.steps_seen) if self.run.per_step else ()),
        )

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


def _in_steps(losing: int, seen: int) -> tuple[Measure, Measure]:
    return Measure("steps with it", losing, "count"), Measure("steps analysed", seen, "count")


def of_cause(run: Run, cause: str, least_share: float) -> Idle | None:
    """Idle time of one cause.

    Args:
        run: The run.
        cause: The cause, a key of `Place.idle_causes`.
        least_share: The least share of the step that counts, from 0 to 1.

    Returns:
        The idle time; None where it takes less than `least_share` of the step.
    """
    time = affected_in_job(run, lambda place: place.idle_ns(cause), least_share)
    return Idle(run, time.ns, time.share, time.worst, time.worst.idle_causes[cause]) if time else None


def part_of_cause(run: Run, cause: str, of_place: Callable[[Place], float], least_share: float) -> Affected | None:
    """A part of this cause's idle time, in ns of each place's window. Not counted where all of it is too little."""
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
