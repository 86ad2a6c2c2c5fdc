"""Is a training slower than its baseline by more than is allowed, and if the noise hides that, what would show it?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.comparison import statistics
from perfdoctor.comparison.compare import SAME_BATCH, compare, samples, steps_compared, usual_spread
from perfdoctor.comparison.records import Comparison, Snapshot, StepSample, StepVerdict
from perfdoctor.comparison.refusal import refuse_without_steps
from perfdoctor.errors import PerfdoctorError

Decision = Literal["regression", "improvement", "no change", "too noisy"]
_DECISIONS: Mapping[StepVerdict, Decision] = {
    "slower": "regression", "faster": "improvement", "no change": "no change", "too noisy": "too noisy",
}  # fmt: skip

#: The smallest limit that one run a side decides on a GPU: the interval of two runs of 30 steps reaches 1.5 to 2 % to
#: each side (runs are taken to differ by 0.5 %, steps do by up to 2 %), so that 96 % of equal pairs are "no change".
LIMIT = 0.03
#: A decision is right so often; and made so often with the runs that are named, as is usual for planned samples.
_POWER = 0.8
#: Nobody records more.
MOST_RUNS = 100


class BaselineRun(Struct, frozen=True):
    """`name`: its id in the history, or its path. `by_recording`: was its recording read, or is only known what the
    history stored? Texts are "" where they are not known.
    """

    name: str
    by_recording: bool
    recorded_at: str = ""
    commit: str = ""
    dirty: bool = False


class Check(Struct, frozen=True):
    """`limit`: the change that fails, as a share. `runs_needed`: on each side, to see a change of so much or none;
    None where it is decided, or no number of runs would do. `sources`: file and line in the checkout of own lines, by
    their text, and of the program, by "".
    """

    comparison: Comparison
    baseline: str
    baseline_runs: tuple[BaselineRun, ...]
    limit: float
    decision: Decision
    runs_needed: int | None
    sources: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def within(self) -> float:
        """The change that would have been seen where none is said: the limit, where that is not 0."""
        return self.limit or LIMIT

    @property
    def failed(self) -> bool:
        """Is the step surely longer by more than the limit?"""
        return self.comparison.judged.is_longer_by(self.limit)


def check(
    baseline: str,
    baseline_runs: Sequence[BaselineRun],
    before: Sequence[Snapshot],
    after: Sequence[Snapshot],
    limit: float,
) -> Check:
    """Hold the runs of AFTER against the baseline's. Raises PerfdoctorError where they cannot be compared."""
    refuse_without_steps([*before, *after])
    _refuse_other_batches(baseline, before, after)
    within = limit or LIMIT
    comparison = compare(before, after, within=within, anyway=True)  # its series is known to be the same
    decision = _DECISIONS[comparison.judged.verdict]
    which = steps_compared(before, after)
    needed = None
    if decision == "too noisy":
        sides = [samples(side, which) for side in (before, after)]
        needed = runs_needed(sides[0], sides[1], usual_spread(before[0]), within)
    return Check(comparison, baseline, tuple(baseline_runs), limit, decision, needed)


def _refuse_other_batches(baseline: str, before: Sequence[Snapshot], after: Sequence[Snapshot]) -> None:
    sides = [[each.items_per_step for each in side if each.items_per_step] for side in (before, after)]
    if not all(sides):
        return
    was, now = (float(np.mean(side)) for side in sides)
    if abs(was - now) > SAME_BATCH * max(was, now):
        raise PerfdoctorError(
            f"the baseline {baseline} has another batch: {was:,.0f} items a step, here {now:,.0f}",
            do="Pin a run with this batch, or let perfdoctor compare judge the time of one item.",
        )


def runs_needed(before: Sequence[StepSample], after: Sequence[StepSample], usual: float, within: float) -> int | None:
    """How many runs each side needs so that a change of `within` is seen, and none is said where there is none, each
    in four of five checks. None where 100 are too few, or where a single step shows no spread.

    The least n with (t(0.975) + t(0.9)) · sqrt((v₁ + v₂) / n + c₁ + c₂) ≤ ln(1 + within): the sample size of a test for
    equivalence (S.-C. Chow, J. Shao, H. Wang, Sample Size Calculations in Clinical Research, 2nd edition 2008, section
    3.2.3) on the logarithmic scale of the interval. v: the variance of one run's mean step as a share of it, from run
    to run and from its steps; t: Student's quantiles with the degrees of freedom of Welch and Satterthwaite; c: what
    other programs took of one side's cores, which no number of runs averages away.
    """
    if any(run.steps_ns.size < 2 for run in (*before, *after)):
        return None
    alone = [[replace(run, contended=0.0) for run in side] for side in (before, after)]
    spreads = statistics.run_spreads(alone[0], alone[1], usual)
    variances = [_variance(side, spread) for side, (spread, _) in zip((before, after), spreads, strict=True)]
    common = sum(
        float(np.mean([statistics.contention(run.contended) for run in side])) ** 2 for side in (before, after)
    )
    whole = sum(variances)
    squares = sum(variance**2 for variance in variances)
    for runs in range(2, MOST_RUNS + 1):
        freedom = (runs - 1) * whole**2 / squares if squares else math.inf
        quantiles = statistics.student(freedom) + statistics.student(freedom, _POWER)
        if quantiles * math.sqrt(whole / runs + common) <= math.log1p(within):
            return runs
    return None


def _variance(runs: Sequence[StepSample], spread: float) -> float:
    """The variance of one run's mean step, as a share of it: from run to run, and by the noise of its steps."""
    within = [statistics.error_of_mean(run.steps_ns) / float(run.steps_ns.mean()) for run in runs]
    return spread**2 + float(np.mean(np.square(within)))
