"""What takes more of the step with each doubling of the ranks, by cause, than its share of the first?

With weak scaling a step would stay as it is, with strong scaling it would be shared. What each cause has over that is
fitted over log2 of the ranks (`fits.line`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfdoctor.comparison.contributions import cause_label, causes_of, part_of
from perfdoctor.comparison.matching import mean_of
from perfdoctor.comparison.records import Snapshot
from perfdoctor.comparison.scaling.fits import line
from perfdoctor.comparison.scaling.records import CauseGrowth, Kind

RECORDING = "recording"


def share_of_first(kind: Kind, ranks: int, first: int) -> float:
    """What is left of a step of the first where all work is shared, as a share of it."""
    return first / ranks if kind == "strong" else 1.0


def growth(
    kind: Kind, series: Mapping[int, Sequence[Snapshot]], steps_ns: Sequence[float], *, without_gpu: bool
) -> tuple[tuple[CauseGrowth, ...], CauseGrowth]:
    """Of each cause, what grows most first, and of the step. `series`: by ranks, ascending; `steps_ns`: their steps.

    Where unrecorded steps are known, what recording took from each is a cause, so that all sum to the step.
    """
    ranks = list(series)
    times: list[dict[str, float]] = []
    for snapshots, step_ns in zip(series.values(), steps_ns, strict=True):
        parts, compute = (mean_of([getattr(each, name) for each in snapshots]) for name in ("parts", "compute"))
        causes = causes_of(parts, compute)
        times.append({**causes, RECORDING: step_ns - sum(causes.values())})
    names = [name for name in dict.fromkeys(name for each in times for name in each) if _counts(times, name)]
    labels = {name: cause_label(name, without_gpu=without_gpu) for name in names if name != RECORDING}
    labels[RECORDING] = "what recording added, taken off"
    found = [_grown(kind, ranks, name, labels[name], [each.get(name, 0.0) for each in times]) for name in names]
    found.sort(key=lambda each: -each.per_doubling_ns)
    return tuple(found), _grown(kind, ranks, "", "the step", list(steps_ns))


def _counts(times: Sequence[Mapping[str, float]], name: str) -> bool:
    """A nanosecond or more in some step."""
    return any(abs(each.get(name, 0.0)) >= 1 for each in times)


def _grown(kind: Kind, ranks: Sequence[int], key: str, label: str, times_ns: Sequence[float]) -> CauseGrowth:
    over = [ns - share_of_first(kind, n, ranks[0]) * times_ns[0] for n, ns in zip(ranks, times_ns, strict=True)]
    fit = line([math.log2(each / ranks[0]) for each in ranks], over)
    part = "profiler" if key == RECORDING else part_of(key)
    return CauseGrowth(key, label, part, tuple(times_ns), tuple(over), fit.slope, fit.slope_error)
