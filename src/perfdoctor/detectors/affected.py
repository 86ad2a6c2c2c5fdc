"""How much of the step is a finding about, and on which place does it take most? What most detectors begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from msgspec import Struct

from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.run import Job, Run
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
        """The values that most rules show: this time, the step's, and the share.

        Args:
            of: What the names of the values begin with: of `"lost"` they are lost_ms, step_ms and lost_percent.

        Returns:
            The three values by name, in ms and percent.
        """
        return {f"{of}_ms": ms(self.ns), "step_ms": ms(self.run.step_ns), f"{of}_percent": percent(self.share)}


def affected(
    run: Run, of_place: Callable[[Place], float], least_share: float, *, of_job: bool = False
) -> Affected | None:
    """The time of a step that a finding is about.

    Args:
        run: The run.
        of_place: The time in ns of one place's window. It is called once for each place.
        least_share: The least share of the step that counts, from 0 to 1.
        of_job: Does `of_place` ask for parts of the step alone? These are known of all ranks, also of those that were
            not read in full, and then all ranks are asked.

    Returns:
        The mean time over all places; None where it is less than `least_share` of the step.
    """
    time_ns = once_per_place(of_place)
    asked = cast("Job[Place]", run.job) if of_job else run
    if not run.places or (share := asked.share(time_ns)) < least_share:
        return None
    return Affected(run, asked.mean(time_ns), share, run.worst(time_ns))
