"""How long are the steps of a trial, and how much shorter than those of another one?

On a busy machine the training thread is queued while others have the cores, and that differs from run to run by more
than fixes save. Linux counts this time. The part of it that other programs are to blame for is taken off: it is their
part of all that ran beside the thread, as a scheduler is fair (CFS, EEVDF). The rest is the program's own: its loader's
workers, the threads of its ops and its other ranks compete with its training thread on a free machine, too.
"""

from __future__ import annotations

import math

import numpy as np

from perfdoctor.metrics.accounting.timed_steps import steady, warmed_up
from perfdoctor.model.columns import Floats
from perfdoctor.recording.treated_run import TrialReport

#: Of the cores; others use so little on a machine that is free (a shell, an editor), and nobody is queued for them.
_FREE = 0.1
#: Without so many turns that both made, whole runs are compared.
_FEWEST_TURNS = 3


def undisturbed(report: TrialReport) -> Floats:
    """The steps in ns, without what other programs made them longer by."""
    lengths = np.asarray(report.lengths_ns, np.float64)
    queued = np.asarray(report.queued_ns, np.float64)
    if report.others < _FREE or queued.size != lengths.size:
        return lengths
    return np.maximum(lengths - queued * report.others / (report.others + report.beside), 1.0)


def mean_ns(report: TrialReport) -> float:
    """The mean of the steady steps; of all where there are none, 0 without any."""
    lengths = undisturbed(report)
    steps = steady(lengths.tolist()) if lengths.size else lengths
    return float(steps.mean()) if steps.size else float(lengths.mean()) if lengths.size else 0.0


def log_ratio(treated: TrialReport, untreated: TrialReport) -> float:
    """The logarithm of the treated step over the untreated one.

    Of runs that took turns, the mean over turns: each pair made the same steps shortly after each other.
    """
    both = sorted(set(treated.turns) & set(untreated.turns))
    if len(both) < _FEWEST_TURNS:
        return math.log(mean_ns(treated) / mean_ns(untreated))
    means = [[float(part.mean()) for part in _turns(report, both)] for report in (treated, untreated)]
    ratios = np.asarray(means[0]) / np.asarray(means[1])
    return float(np.log(warmed_up(ratios)).mean())


def _turns(report: TrialReport, numbers: list[int]) -> list[Floats]:
    steps = undisturbed(report)
    return [steps[slice(*report.turns[number])] for number in numbers]
