"""How long are the steps of a trial, and how much shorter than those of another one?

Of runs that took turns each turn is held against the same turn of the other: what else goes on on the machine is the
same for both. Time for which a thread had no core, though it could run, is left in: Linux counts it, and without it
steps differ less; but a fix that moves work from the training thread to others has the machine's load wait there, where
the count of one thread does not see it, and would seem to be slower.
"""

from __future__ import annotations

import math

import numpy as np

from perfdoctor.metrics.accounting.timed_steps import steady, warmed_up
from perfdoctor.model.columns import Floats
from perfdoctor.recording.treated_run import TrialReport

#: Without so many turns that both made, whole runs are compared.
_FEWEST_TURNS = 3


def mean_ns(report: TrialReport) -> float:
    """The mean of the steady steps; of all where there are none, 0 without any."""
    steps = steady(report.lengths_ns) if report.lengths_ns else np.zeros(0)
    return float(steps.mean()) if steps.size else float(np.mean(report.lengths_ns or [0]))


def log_ratio(treated: TrialReport, untreated: TrialReport) -> float:
    """The logarithm of the treated step over the untreated one.

    Of runs that took turns, the sums of the same steps: what falls on few turns (a restart of workers, garbage
    collection) counts with all the time that it takes, as it does in a training.
    """
    both = sorted(set(treated.turns) & set(untreated.turns))
    if len(both) < _FEWEST_TURNS:
        return math.log(mean_ns(treated) / mean_ns(untreated))
    steps = [min(_count(treated.turns[each]), _count(untreated.turns[each])) for each in both]
    one, other = (_sums_ns(report, both, steps) for report in (treated, untreated))
    # A warm-up of one of them is clearest in the ratio; one that both have weighs as much as many turns behind it.
    left = min(warmed_up(each).size for each in (one / other, one + other))
    return math.log(one[-left:].sum() / other[-left:].sum())


def _count(turn: tuple[int, int]) -> int:
    return turn[1] - turn[0]


def _sums_ns(report: TrialReport, turns: list[int], steps: list[int]) -> Floats:
    """How long each of these turns took, of its first so many steps."""
    lengths, begins = np.asarray(report.lengths_ns, np.float64), [report.turns[each][0] for each in turns]
    return np.array([lengths[begin : begin + count].sum() for begin, count in zip(begins, steps, strict=True)])
