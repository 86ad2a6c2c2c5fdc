"""What grows with the ranks, by cause, what of it acts as if it were serial, and how sure is either?

With k = ranks over the fewest, t the step, S the speed-up in throughput and E = S / k:

```
strong  t(k) = s + p / k: the least squares fit over 1/k gives s, serial share s / (s + p), limit (s + p) / s
        (G. Amdahl, Validity of the Single Processor Approach, AFIPS 30, 1967)
        of one recording against the first: (1/S − 1/k) / (1 − 1/k)
        (A. Karp, H. Flatt, Measuring Parallel Processor Performance, Communications of the ACM 33, 1990)
weak    S(k) = k − α·(k − 1): α by least squares through S(1) = 1, no limit
        (J. Gustafson, Reevaluating Amdahl's Law, Communications of the ACM 31, 1988)
```

Both are linear in the times of causes, so that the serial shares of causes sum to that of the step.

Lines are fitted by ordinary least squares (N. Draper, H. Smith, Applied Regression Analysis, 3rd ed., 1998, chapter 1):
slope b = Σ(x − x̄)(y − ȳ) / Σ(x − x̄)², intercept a = ȳ − b·x̄; s² = Σ(y − a − b·x)² / (m − 2); standard errors
s / √Σ(x − x̄)² of the slope, s·√(1/m + x̄² / Σ(x − x̄)²) of the intercept, and s·√(1 + 1/m + (x − x̄)² / Σ(x − x̄)²) of
another observation at x. A line through the origin: b = Σxy / Σx², with m − 1 degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.comparison.contributions import cause_label, causes_of, part_of
from perfdoctor.comparison.matching import mean_of
from perfdoctor.comparison.records import Snapshot
from perfdoctor.comparison.scaling.records import CauseGrowth, Kind, Serial, SerialCause

RECORDING = "recording"


class FittedLine(Struct, frozen=True):
    """y = intercept + slope · x. Errors are standard errors; None where there are as few points as parameters."""

    intercept: float
    slope: float
    intercept_error: float | None = None
    slope_error: float | None = None

    def at(self, x: float) -> float:
        return self.intercept + self.slope * x


def line(x: Sequence[float], y: Sequence[float]) -> FittedLine:
    """The least-squares line through two or more points whose x are not all equal."""
    across, up = np.asarray(x, np.float64), np.asarray(y, np.float64)
    middle = float(across.mean())
    spread = float(((across - middle) ** 2).sum())
    slope = float(((across - middle) * (up - up.mean())).sum()) / spread
    intercept = float(up.mean()) - slope * middle
    if across.size < 3:
        return FittedLine(intercept, slope)
    left = math.sqrt(float(((up - intercept - slope * across) ** 2).sum()) / (across.size - 2))
    return FittedLine(
        intercept, slope, left * math.sqrt(1 / across.size + middle**2 / spread), left / math.sqrt(spread)
    )  # fmt: skip


def error_at(x: Sequence[float], y: Sequence[float], at: float) -> float:
    """The standard error of another observation at `at`, by the line through these; 0.0 if two points show none."""
    fit, across = line(x, y), np.asarray(x, np.float64)
    if fit.slope_error is None:
        return 0.0
    spread = float(((across - across.mean()) ** 2).sum())
    left = fit.slope_error * math.sqrt(spread)
    return left * math.sqrt(1 + 1 / across.size + (at - float(across.mean())) ** 2 / spread)


def through_origin(x: Sequence[float], y: Sequence[float]) -> FittedLine:
    """The least-squares line y = slope · x through one or more points."""
    across, up = np.asarray(x, np.float64), np.asarray(y, np.float64)
    size = float((across**2).sum())
    slope = float((across * up).sum()) / size
    if across.size < 2:
        return FittedLine(0.0, slope)
    left = math.sqrt(float(((up - slope * across) ** 2).sum()) / (across.size - 1))
    return FittedLine(0.0, slope, None, left / math.sqrt(size))


def share_of_first(kind: Kind, ranks: int, first: int) -> float:
    """The share of a step among `first` ranks that one among `ranks` would take, if all work were shared."""
    return first / ranks if kind == "strong" else 1.0


def growth(
    kind: Kind, series: Mapping[int, Sequence[Snapshot]], steps_ns: Sequence[float], *, without_gpu: bool
) -> tuple[tuple[CauseGrowth, ...], CauseGrowth]:
    """The growth of each cause, what grows most first, and of the step: what takes more than its share of the first.

    With weak scaling a step would stay as it is, with strong scaling it would be shared; what a cause has over that is
    fitted over log2 of the ranks. `series`: runs by ranks, ascending; `steps_ns`: the mean step of each. If unrecorded
    steps are known, what recording took from each is a cause, so that all sum to the step.
    """
    ranks = list(series)
    times: list[dict[str, float]] = []
    for snapshots, step_ns in zip(series.values(), steps_ns, strict=True):
        parts, compute = (mean_of([getattr(each, name) for each in snapshots]) for name in ("parts", "compute"))
        causes = causes_of(parts, compute)
        times.append({**causes, RECORDING: step_ns - sum(causes.values())})
    every = dict.fromkeys(name for each in times for name in each)
    names = [name for name in every if any(abs(each.get(name, 0.0)) >= 1 for each in times)]
    labels = {name: cause_label(name, without_gpu=without_gpu) for name in names if name != RECORDING}
    labels[RECORDING] = "what recording added, taken off"
    found = [_grown(kind, ranks, name, labels[name], [each.get(name, 0.0) for each in times]) for name in names]
    found.sort(key=lambda each: -each.per_doubling_ns)
    return tuple(found), _grown(kind, ranks, "", "the step", list(steps_ns))


def _grown(kind: Kind, ranks: Sequence[int], key: str, label: str, times_ns: Sequence[float]) -> CauseGrowth:
    over = [ns - share_of_first(kind, n, ranks[0]) * times_ns[0] for n, ns in zip(ranks, times_ns, strict=True)]
    fit = line([math.log2(each / ranks[0]) for each in ranks], over)
    part = "profiler" if key == RECORDING else part_of(key)
    return CauseGrowth(key, label, part, tuple(times_ns), tuple(over), fit.slope, fit.slope_error)


def karp_flatt(speedup: float, more: float) -> float | None:
    """The share of the first step that was not shared among `more` times the ranks; None of the first itself."""
    return (1 / speedup - 1 / more) / (1 - 1 / more) if more > 1 and speedup > 0 else None


def serial(kind: Kind, ranks: Sequence[int], whole: CauseGrowth, causes: Sequence[CauseGrowth]) -> Serial | None:
    """The serial share of the step and of each cause; None if it is unknown how the work of a rank changes."""
    more = [each / ranks[0] for each in ranks]
    if kind == "strong":
        return _amdahl(more, whole, causes)
    return _gustafson(more, whole, causes) if kind == "weak" else None


def _amdahl(more: Sequence[float], whole: CauseGrowth, causes: Sequence[CauseGrowth]) -> Serial:
    across = [1 / each for each in more]
    step = line(across, whole.times_ns)
    first_ns = step.at(1.0)
    found = [(each, line(across, each.times_ns)) for each in causes]
    share = step.intercept / first_ns
    return Serial(
        "amdahl", share, _share(step.intercept_error, first_ns), 1 / share if share > 0 else None,
        _largest(
            SerialCause(each.key, each.label, fit.intercept / first_ns, _share(fit.intercept_error, first_ns))
            for each, fit in found
        ),
    )  # fmt: skip


def _gustafson(more: Sequence[float], whole: CauseGrowth, causes: Sequence[CauseGrowth]) -> Serial:
    across = [each - 1 for each in more[1:]]

    def fitted(growth: CauseGrowth) -> tuple[float, float | None]:
        """K − S = k · (t(k) − t(1)) / t(k), of which each cause has its part."""
        lost = [k * over / ns for k, over, ns in zip(more[1:], growth.over_ns[1:], whole.times_ns[1:], strict=True)]
        fit = through_origin(across, lost)
        return fit.slope, fit.slope_error

    share, error = fitted(whole)
    return Serial(
        "gustafson", share, error, None, _largest(SerialCause(each.key, each.label, *fitted(each)) for each in causes)
    )


def _share(ns: float | None, whole_ns: float) -> float | None:
    return None if ns is None else ns / whole_ns


def _largest(causes: object) -> tuple[SerialCause, ...]:
    return tuple(sorted(causes, key=lambda each: -abs(each.share)))  # type: ignore[call-overload]
