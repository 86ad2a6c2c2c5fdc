"""How much of the step is a finding about, and on which place does it take most? What most detectors begin with."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Value

#: What is more than half of a time is named as its cause, or its owner.
MOST_OF_IT = 0.5


class Affected(Struct, frozen=True):
    """Time of a step, on the mean of all places, and its share of the step. `worst`: where that share is largest."""

    run: Run
    ns: int
    share: float
    worst: Place

    def time_values(self, of: str) -> dict[str, Value]:
        """What most rules say: this time, the step's and the share; of "lost" lost_ms, step_ms, lost_percent."""
        return {f"{of}_ms": ms(self.ns), "step_ms": ms(self.run.step_ns), f"{of}_percent": percent(self.share)}


def affected(
    run: Run, of_place: Callable[[Place], float], least_share: float, *, of_job: bool = False
) -> Affected | None:
    """The time that `of_place` gives for each place's window; None where it is less than this share of the step.

    `of_place` is called once for each place. `of_job`: it asks for parts of the step alone, which are known of all
    ranks, also of those that were not read in full.
    """
    time_ns, asked = once_per_place(of_place), run.job if of_job else run
    share = asked.share(time_ns) if run.places else 0.0
    if not run.places or share < least_share:
        return None
    return Affected(run, asked.mean(time_ns), share, run.worst(time_ns))
