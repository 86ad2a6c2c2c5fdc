"""Kernels far from every limit of the device that leave most of the places for warps empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.findings import Finding, Saving
from perfdoctor.metrics.kernel_limits import Bounds, Claim, claim, evidence
from perfdoctor.metrics.kernel_profiles import Floats, Measured
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.units import ms, percent


def _share_won(kernels: Measured, occupancy: float, reached: float, *, capped: bool) -> Floats:
    """Of its time: twice the warps hide twice the waits, until `occupancy` is reached or the busiest unit is busy."""
    share = 1 - np.fmax(kernels.number("occupancy_share") / occupancy, kernels.busiest_share / reached)
    return np.fmin(share, kernels.estimated_share) if capped else share


def _limiter(found: Claim) -> str:
    """What keeps warps away from most of their time: too few blocks, or what each block takes."""
    kernels, spent = found.kernels, Counter[str]()
    waves = kernels.number("waves_per_sm")
    for number in np.unique(kernels.stands_in[found.rows]).tolist():
        own = found.rows & (kernels.stands_in == number)
        row = int(np.flatnonzero(own)[0])
        spent["grid" if waves[row] < 1 else kernels.word("occupancy_limiter", row)] += int(kernels.time_ns[own].sum())
    return spent.most_common(1)[0][0]


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Few warps are no fault where a unit is busy all the same: good matmuls need few."""
    bounds = Bounds(
        at["min_excess_share"], at["max_busy_share"], at["max_occupancy_share"], at["min_kernel_ns"]
    )  # fmt: skip
    found = claim(run, bounds.few_warps)
    if not found.rows.any() or found.share < at["min_share_of_step"]:
        return

    def won(level: str) -> int:
        occupancy, reached = at[f"reached_occupancy_share_{level}"], at[f"reached_share_{level}"]
        return found.won_ns(lambda kernels: _share_won(kernels, occupancy, reached, capped=level != "high"))

    limiter = _limiter(found)
    yield Finding(
        rule="low-occupancy-kernels",
        saving_ns_per_step=Saving(won("low"), won("likely"), won("high")),
        confidence="medium",
        values={
            "kernels": found.rows.sum() / found.units,
            "kernels_ms": ms(found.time_ns),
            "step_ms": ms(found.whole_ns),
            "kernels_percent": percent(found.share),
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
        situation="alone" if found.alone else limiter if limiter in ("grid", "registers", "shared memory") else "",
        work=found.work(),
        counted_ns=0 if found.alone else found.time_ns,
    )
