"""How much of the step is a finding about, and on which place does it take most? What most detectors begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from msgspec import Struct

from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Value

#: What is more than half of a time is named as its cause, or its owner.
MOST_OF_IT = 0.5


class Affected(Struct, frozen=True):
    """Time in ns a step, on the mean of all places, and its share of the step. `worst`: where it is largest."""

    run: Run
    ns: int
    share: float
    worst: Place

    def time_values(self, of: str) -> dict[str, Value]:
        """The values of most rules: this time, the step's, the share; of "lost": lost_ms, step_ms, lost_percent."""
        return {f"{of}_ms": ms(self.ns), "step_ms": ms(self.run.step_ns), f"{of}_percent": percent(self.share)}


def affected(
    run: Run, of_place: Callable[[Place], float], least_share: float, *, of_job: bool = False
) -> Affected | None:
    """The time that `of_place` gives for each place's window; None where it is less than this share of the step.

    `of_place` is called once for each place. `of_job`: it asks for parts of the step alone, which are known of all
    ranks, also of those that were not read in full.
    """
    if of_job:
        return affected_in_job(run, cast("Callable[[JobPlace], float]", of_place), least_share)
    time_ns = once_per_place(of_place)
    if not run.places or (share := run.share(time_ns)) < least_share:
        return None
    return Affected(run, run.mean(time_ns), share, run.worst(time_ns))


def affected_in_job(run: Run, of_place: Callable[[JobPlace], float], least_share: float) -> Affected | None:
    """As `affected`, of all ranks of the job, also of those that were not read in full."""
    time_ns = once_per_place(of_place)
    if not run.places or (share := run.job.share(time_ns)) < least_share:
        return None
    return Affected(run, run.job.mean(time_ns), share, run.worst(time_ns))
