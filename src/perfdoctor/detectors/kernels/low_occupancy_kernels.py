"""Kernels far from every limit of the device that leave most of the places for warps empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.kernels.limits import Bounds, Claim, claim, evidence
from perfdoctor.metrics.kernels.profiles import Measured
from perfdoctor.metrics.units import percent
from perfdoctor.model.columns import Floats
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding

#: What limits warps, and the situation of such kernels where there is no timeline.
_ALONE = {"grid": "alone grid", "registers": "alone registers", "shared memory": "alone shared memory"}


def _limiter(found: Claim) -> str:
    """What limits warps in most of the kernels' time: a small grid, or what each block takes."""
    kernels, spent = found.kernels, Counter[str]()
    small = (kernels.number("waves_per_sm") < 1) | (kernels.used_sms_share < 1)
    for number in np.unique(kernels.stands_in[found.rows]).tolist():
        own = found.rows & (kernels.stands_in == number)
        row = int(np.flatnonzero(own)[0])
        limiter = "grid" if small[row] else kernels.word("occupancy_limiter", row)
        spent[limiter] += int(kernels.time_ns[own].sum())
    return spent.most_common(1)[0][0]


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find kernels with few warps and no busy unit: good matmuls need few warps."""
    bounds = Bounds(at["min_excess_share"], at["min_kernel_ns"], at["max_busy_share"], at["max_occupancy_share"])
    found = claim(run, bounds.few_warps)
    if not found.rows.any() or found.share < at["min_share_of_step"]:
        return

    def share_won(kernels: Measured, case: str) -> Floats:
        """The share of their time that more warps save, until the busiest unit is busy or no warp fits any more.

        Little's law: what is under way is rate times latency. At the most, all places are taken: that is a ceiling.
        """
        own = kernels.number("occupancy_share") * kernels.used_sms_share
        reached = np.minimum(own * at[f"times_as_many_warps_{case}"], 1.0)
        # A larger grid takes the places that a processor has; fewer registers or bytes make new ones.
        most = np.where(kernels.number("waves_per_sm") < 1, np.fmax(kernels.number("occupancy_limit_share"), own), 1.0)
        reached = np.fmin(reached, most) if case != "high" else np.ones_like(own)
        return 1 - np.fmax(own / reached, np.minimum(kernels.busiest_share / at[f"reached_share_{case}"], 1.0))

    limiter, gain_ns = _limiter(found), found.measured_gain_ns(share_won)
    yield Finding(
        rule="low-occupancy-kernels",
        saving_ns_per_step=found.saving(share_won, lambda kernels: kernels.estimated_share),
        confidence="medium",
        values={
            **found.sentence_values(gain_ns),
            "occupancy_percent": percent(found.mean(found.kernels.number("occupancy_share"))),
            "busy_percent": percent(found.mean(found.kernels.busiest_share)),
        },
        evidence=evidence(
            found,
            {
                "places for warps that are taken": found.kernels.number("occupancy_share"),
                "places that could be taken": found.kernels.number("occupancy_limit_share"),
                "how busy their busiest unit is": found.kernels.busiest_share,
            },
        ),
        situation=_ALONE.get(limiter, "alone") if found.alone else limiter if limiter in _ALONE else "",
        work=found.work(),
        affected_ns=found.affected_ns,
        measured_gain_ns=gain_ns,
    )
