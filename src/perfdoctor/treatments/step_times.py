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

    Of runs that took turns, the mean over turns: each pair made the same steps shortly after each other.
    """
    both = sorted(set(treated.turns) & set(untreated.turns))
    if len(both) < _FEWEST_TURNS:
        return math.log(mean_ns(treated) / mean_ns(untreated))
    ratios = _means(treated, both) / _means(untreated, both)
    return float(np.log(warmed_up(ratios)).mean())


def _means(report: TrialReport, turns: list[int]) -> Floats:
    steps = np.asarray(report.lengths_ns, np.float64)
    return np.array([steps[slice(*report.turns[each])].mean() for each in turns])
