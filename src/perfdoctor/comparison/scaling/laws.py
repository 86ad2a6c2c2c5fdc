"""What acts as if it were serial, and which cause is it?

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
"""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.comparison.scaling.fits import line, through_origin
from perfdoctor.comparison.scaling.records import CauseGrowth, Kind, Serial, SerialCause


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
