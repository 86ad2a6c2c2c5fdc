"""Which part of a step grew when steps became longer? Means before against means since, of what every step notes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from perfdoctor.watching.anomalies import Cause
from perfdoctor.watching.rows import Stretch, Use, per_step

#: A part that grew by so much of what the step grew is its cause.
_MOST_OF_IT = 0.5


def cause_of(before: Sequence[Stretch], since: Sequence[Stretch], uses: Sequence[Use]) -> tuple[Cause, float]:
    """The cause, and its share of what a step grew by. `uses`: of the whole time."""
    if not before or not since:
        return "elsewhere", 0.0

    def grown(name: str) -> float:
        return _typical(since, name) - _typical(before, name)

    longer = grown("sum")
    if longer <= 0:
        return "elsewhere", 0.0
    parts: dict[Cause, float] = {"input": grown("wait"), "host": grown("host")}
    parts["cores"] = _delay_per_step(since, uses) - _delay_per_step(before, uses)
    parts["device"] = _device(since) - _device(before) if _device(before) else 0.0
    # A batch that the training itself makes takes its core: that is input, and no other work of the host.
    parts["host"] -= max(min(parts["host"], parts["input"]), 0.0)
    name = max(parts, key=lambda each: parts[each])
    share = min(parts[name] / longer, 1.0)
    return (name, share) if share >= _MOST_OF_IT else ("elsewhere", max(share, 0.0))


def _typical(stretches: Sequence[Stretch], name: str) -> float:
    return float(np.median(per_step(stretches, name)))


def _device(stretches: Sequence[Stretch]) -> float:
    known = [each.device for each in stretches if each.device]
    return float(np.median(known)) if known else 0.0


def _delay_per_step(stretches: Sequence[Stretch], uses: Sequence[Use]) -> float:
    """How long the training thread waits for a core in a step, ready to run."""
    begun, ended = stretches[0].end - stretches[0].sum, stretches[-1].end
    inside = [each for each in uses if begun <= each.at <= ended]
    steps = sum(each.steps for each in stretches)
    delays = [max(b.delay - a.delay, 0) for a, b in pairwise(inside)]
    lasted = inside[-1].at - inside[0].at if len(inside) > 1 else 0
    return sum(delays) / lasted * (ended - begun) / steps if lasted else 0.0
