"""May several trials be at work at once, taking turns? Where each has room, and none can meet another."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from perfdoctor.recording.treated_run import TrialReport

#: A turn is short against what changes a machine: on a busy one turns of 0.1 s and of 0.5 s differed by as much. It is
#: long against a switch between two programs, some ms; and without what disturbs it, against filling a processor's
#: caches again, some tenths of one.
_TURN_S, _UNDISTURBED_S = 0.05, 0.01
#: Of the steps so many are shorter than those that nothing disturbs.
_FASTEST = 0.1
#: The untreated program and so many treated ones; those that are stopped still hold their memory.
_MOST = 5
#: Of the memory that is free: the rest is for what treatments take beyond the untreated program, and for others.
_MEMORY = 0.5


def most_at_once(report: TrialReport, free_bytes: int) -> tuple[int, str]:
    """How many programs like this one may be at work at once here; 1 and the reason where only one may."""
    if report.gpu_bytes:
        return 1, "it uses a GPU, which programs at once would share"
    if report.ranks > report.here:
        return 1, "some of its ranks are on other machines"
    room = int(free_bytes * _MEMORY / max(report.host_bytes, 1))
    return (min(room, _MOST), "") if room > 1 else (1, "there is no memory for a second one")


def steps_of_turn(lengths_ns: Sequence[int]) -> int:
    """How many steps a turn has, of steps that take so long here."""
    if not lengths_ns:
        return 1
    mean_s, fastest_s = float(np.mean(lengths_ns)) / 1e9, float(np.quantile(lengths_ns, _FASTEST)) / 1e9
    return max(math.ceil(_TURN_S / max(mean_s, 1e-6)), math.ceil(_UNDISTURBED_S / max(fastest_s, 1e-6)))
