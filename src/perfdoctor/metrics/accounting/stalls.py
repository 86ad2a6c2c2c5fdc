"""What came up in the middle of steady steps and kept the device idle, and in how many of the steps?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.accounting.behind_idle import Culprit, culprits, each_step_ns, host_rows
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run


@dataclass(frozen=True)
class Stalls:
    """Idle of one cause: ns a step over all places, and on the worst of them in which steps, and what ran meanwhile."""

    lost_ns: int
    share: float
    worst: Place
    steps_hit: int
    steps_seen: int
    longest_ns: int
    named: tuple[Culprit, ...]
    per_step: bool

    @property
    def situation(self) -> str:
        """`window` where no steps are known, `once` where only one step has it: then it may be over."""
        if not self.per_step:
            return "window"
        return "" if self.steps_hit > 1 else "once"


def stalls(run: Run, cause: str, signals: tuple[str, ...], least_share: float) -> Stalls | None:
    """None where less than `least_share` of the step is lost; a step that loses less is not hit.

    `signals`: where the names are looked for.
    """

    def lost_ns(place: Place) -> int:
        return place.idle_ns(cause)

    share = run.share(lost_ns)
    if share < least_share:
        return None
    worst = run.worst(lost_ns)
    pieces = worst.idle_causes[cause]
    each_ns = each_step_ns(worst, pieces)
    hit = np.count_nonzero(each_ns >= least_share * worst.per_step(worst.window_ns))
    named = tuple(culprits(pieces, host_rows(worst, signals)))
    longest_ns = int(each_ns.max(initial=0))
    return Stalls(run.mean(lost_ns), share, worst, int(hit), int(each_ns.size), longest_ns, named, run.per_step)
