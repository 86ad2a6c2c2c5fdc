"""Which part of a step grew when steps became longer? Means before against means since, of what every step notes.

On a GPU the thread's time on a core is none of these parts: a thread that waits for the GPU spins, whatever it is that
makes the GPU late. Nor is the length by the GPU's clock, in which all other causes are as well, unless the GPU had work
all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from perfdoctor.watching.anomalies import Cause
from perfdoctor.watching.rows import RankSteps, Stretch, Use, per_step

#: A part that grew by so much of what the step grew is its cause.
_MOST_OF_IT = 0.5


def cause_of(before: Sequence[Stretch], since: Sequence[Stretch], rank: RankSteps) -> tuple[Cause, float]:
    """The cause, and its share of what a step of this rank grew by."""
    if not before or not since:
        return "elsewhere", 0.0

    def grown(name: str) -> float:
        return _typical(since, name) - _typical(before, name)

    on_gpu = rank.uses_gpu
    if on_gpu and _is_busy(since):
        # A GPU that waits for other ranks in a collective is at work as well.
        is_alone = rank.process is None or (rank.process.world_size or 1) == 1
        return ("device", 1.0) if is_alone else ("not-input", 0.0)
    longer = _device(since) - _device(before) if on_gpu and _device(before) else grown("sum")
    if longer <= 0:
        return "elsewhere", 0.0
    parts: dict[Cause, float] = {"input": grown("wait")}
    parts["cores"] = _delay_per_step(since, rank.uses) - _delay_per_step(before, rank.uses)
    if not on_gpu:
        # A batch that the training itself makes takes its core: that is input, and no other work of the host.
        parts["host"] = grown("host")
        parts["host"] -= max(min(parts["host"], parts["input"]), 0.0)
    name = max(parts, key=lambda each: parts[each])
    share = min(parts[name] / longer, 1.0)
    if share >= _MOST_OF_IT:
        return name, share
    return "not-input" if on_gpu else "elsewhere", max(share, 0.0)


def _typical(stretches: Sequence[Stretch], name: str) -> float:
    return float(np.median(per_step(stretches, name)))


def _is_busy(stretches: Sequence[Stretch]) -> bool:
    """Did the GPU have work all through most steps?"""
    return 2 * sum(each.busy for each in stretches) > sum(each.steps for each in stretches)


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
