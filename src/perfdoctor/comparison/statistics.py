"""Is the mean step another one, and by how much at least and at most?

Steps of one run depend on their neighbours, so blocks of consecutive steps are drawn (the circular block bootstrap: D.
Politis, J. Romano, 1992), as long as the steps' autocorrelation asks for (D. Politis, H. White, Econometric Reviews 23,
2004, with the correction of A. Patton, D. Politis, H. White, Econometric Reviews 28, 2009). Runs differ by themselves,
so runs are drawn as well, and steps within each (T. Kalibera, R. Jones, ISMM 2013). Run means hold the noise of their
steps already; they are drawn nearer to each other by that much, or it would count twice (A. Davison, D. Hinkley,
Bootstrap Methods and their Application, 1997, section 3.8). A bootstrap of few values is too narrow: deviations are
widened as for an unbiased variance, and then to Student's t (T. Hesterberg, The American Statistician 69, 2015, 5.3).

Where runs of both sides alternated, what drifts from minute to minute is the same for both runs of a pair, and goes out
of their ratio: then the interval is Student's of the logarithms of these ratios, of which a pair has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from perfdoctor.comparison.records import SpreadFrom, StepChange, StepSample, StepsCompared, StepSide, StepVerdict
from perfdoctor.model.columns import Floats, Ints

CONFIDENCE = 0.95
#: The same files give the same interval.
_SEED = 20_260_101
#: The interval's ends move by some hundredths of its width with another seed.
_RESAMPLES = 4_000
#: "No change" is said where a change of a tenth would have been seen: the size at which gates on step time block.
NO_CHANGE_WITHIN = 0.10
#: By how much the mean step of one program differs from run to run, as a standard deviation. On a GPU of one machine it
#: is assumed; on a processor that others use as well it is the median of 66 trainings that were measured twice each
#: (fixtures/pairs/measured.toml), as a normal distribution has it.
USUAL_SPREAD = 0.005
USUAL_SPREAD_ON_CPU = 0.044
#: Correlations within this many standard errors are none (Politis and White's c).
_CLEARLY = 2.0
_FEWEST_LAGS = 5
_MOST_OF_A_RUN = 3

#: A thread that waits for more of its time hardly ran.
_MOST_CONTENDED = 0.95
#: Into so many pieces a run is cut to see how its level drifts; shorter ones than of five steps show noise alone.
_PIECES, _FEWEST_IN_PIECE = 8, 5

#: Of drawn steps, in memory.
_MOST_AT_ONCE = 2_000_000


def step_change(
    before: Sequence[StepSample], after: Sequence[StepSample], usual_spread: float = USUAL_SPREAD, *,
    basis: StepsCompared = "recorded", within: float = NO_CHANGE_WITHIN,
) -> StepChange:  # fmt: skip
    """How the mean step changed between the runs of both sides. `within`: the change that matters, as a share.

    Each run has at least one step.
    """
    spreads = run_spreads(before, after, usual_spread)
    sides = tuple(_side(runs, *spread) for runs, spread in zip((before, after), spreads, strict=True))
    means = [side.mean_ns for side in sides]
    low, high = _interval((before, after), sides, np.mean)
    median_low, median_high = _interval((before, after), sides, np.median)
    change = means[1] / means[0] - 1
    return StepChange(
        sides[0], sides[1], change, low, high, sides[1].median_ns / sides[0].median_ns - 1, median_low, median_high,
        _verdict(low, high, within), None if low is None or high is None else (high - low) / 2, basis != "recorded",
        max(run.contended for run in (*before, *after)), basis,
    )  # fmt: skip


def paired_change(
    before: Sequence[StepSample], after: Sequence[StepSample], *, within: float = NO_CHANGE_WITHIN
) -> StepChange:
    """How the mean step changed where the runs of both sides alternated: the nth of each side are a pair.

    Two pairs at least. Means are geometric ones of the runs' means, so that the change is that of the pairs.
    """
    steps = [[_scaled(run) for run in side] for side in (before, after)]
    means, medians = (np.log([[typical(each) for each in side] for side in steps]) for typical in (np.mean, np.median))
    change, low, high, spread = _of_pairs(means)
    median_change, median_low, median_high, _ = _of_pairs(medians)
    sides = [
        StepSide(
            float(np.exp(means[at].mean())), float(np.exp(medians[at].mean())), len(side),
            sum(each.size for each in side), tuple(block_length(each) for each in side), spread, "pairs",
        )
        for at, side in enumerate(steps)
    ]  # fmt: skip
    return StepChange(
        sides[0], sides[1], change, low, high, median_change, median_low, median_high, _verdict(low, high, within),
        (high - low) / 2, unrecorded=True, steps_compared="paired",
    )  # fmt: skip


def _of_pairs(levels: Floats) -> tuple[float, float, float, float]:
    """Change, its interval's ends, and the standard deviation of one pair's ratio; `levels` are logarithms."""
    ratios = levels[1] - levels[0]
    middle, spread = float(ratios.mean()), float(ratios.std(ddof=1))
    reach = student(ratios.size - 1) * spread / math.sqrt(ratios.size)
    return math.expm1(middle), math.expm1(middle - reach), math.expm1(middle + reach), spread


def _verdict(low: float | None, high: float | None, within: float) -> StepVerdict:
    if low is None or high is None:
        return "too noisy"
    if low > 0:
        return "slower"
    if high < 0:
        return "faster"
    return "no change" if low >= -within and high <= within else "too noisy"


def _scaled(run: StepSample) -> Floats:
    return run.steps_ns * run.scale


def _side(runs: Sequence[StepSample], spread: float, source: SpreadFrom) -> StepSide:
    steps = [_scaled(run) for run in runs]
    return StepSide(
        mean_ns=float(np.mean([each.mean() for each in steps])),
        median_ns=float(np.mean([np.median(each) for each in steps])),
        runs=len(runs),
        steps=sum(each.size for each in steps),
        blocks=tuple(block_length(each) for each in steps),
        spread=spread,
        spread_from=source,
    )


# --- from run to run -------------------------------------------------------------------------------------------------


def run_spreads(
    before: Sequence[StepSample], after: Sequence[StepSample], usual: float
) -> tuple[tuple[float, SpreadFrom], tuple[float, SpreadFrom]]:
    """The spread of the mean step from run to run of each side, beyond the noise of steps, and its source."""
    own = [run_spread([_scaled(run) for run in runs]) if len(runs) > 1 else None for runs in (before, after)]
    return _spread(own[0], own[1], before[0], usual), _spread(own[1], own[0], after[0], usual)


def _spread(own: float | None, other: float | None, first: StepSample, usual: float) -> tuple[float, SpreadFrom]:
    if own is not None:
        return own, "runs"
    known, source = (usual, "usual") if other is None else (other, "other side")
    if (drifts := drift(_scaled(first))) > known:
        known, source = drifts, "drift"
    by_others = contention(first.contended)
    return (math.hypot(known, by_others), "contended") if by_others > known else (known, source)  # type: ignore[return-value]


def contention(share: float) -> float:
    """The spread of a run whose thread waited for so much of its time for cores that other programs had.

    With more or fewer of them next time its step is anywhere between all of it and what is left without the waiting:
    evenly on a logarithmic scale, that is its length over the square root of 12.
    """
    return -math.log(1 - min(share, _MOST_CONTENDED)) / math.sqrt(12)


def drift(steps: Floats) -> float:
    """By how much the level of one run wanders, as a standard deviation and a share of the mean, beyond noise.

    Runs differ by what wanders at least by as much as the mean of a random walk does, whose variance is W²/3 where it
    has come W far, and that of its values around their mean W²/6. Another run need not even begin at the same level.
    """
    size = steps.size // _PIECES
    if size < _FEWEST_IN_PIECE:
        return 0.0
    pieces = steps[: size * _PIECES].reshape(_PIECES, size)
    noise = float(pieces.var(axis=1, ddof=1).mean()) / size
    return math.sqrt(2 * max(float(pieces.mean(axis=1).var(ddof=1)) - noise, 0.0)) / float(steps.mean())


def run_spread(runs: Sequence[Floats]) -> float:
    """The standard deviation from run to run, as a share of the mean, without what their steps' own noise explains."""
    means = np.array([each.mean() for each in runs])
    within = float(np.mean([error_of_mean(each) ** 2 for each in runs]))
    return math.sqrt(max(float(means.var(ddof=1)) - within, 0.0)) / float(means.mean())


def error_of_mean(steps: Floats) -> float:
    """The standard error of the mean step in ns, from the means of blocks; 0 for a single step."""
    if steps.size < 2:
        return 0.0
    length = block_length(steps)
    blocks = _blocks(steps, length).mean(axis=1)
    pieces = steps.size / length
    return float(blocks.std()) / math.sqrt(max(pieces - 1, 1.0))


# --- within a run ----------------------------------------------------------------------------------------------------


def block_length(steps: Floats) -> int:
    """How many consecutive steps are drawn together: the rule of Politis and White for the circular bootstrap.

    In few steps no correlation is clear: never fewer than the cube root of their number (P. Hall, J. Horowitz, B.-Y.
    Jing, Biometrika 82, 1995).
    """
    size = steps.size
    most = math.ceil(min(3 * math.sqrt(size), size / _MOST_OF_A_RUN)) if size else 1
    if size < 4 or not steps.std():
        return 1
    least = int(size ** (1 / 3) + 1e-9)
    around = steps - steps.mean()
    lags = max(_FEWEST_LAGS, math.ceil(math.sqrt(math.log10(size))))
    reach = min(size - 1, math.ceil(math.sqrt(size)) + lags)
    covariance = np.array([float(around[lag:] @ around[: size - lag]) / size for lag in range(reach + 1)])
    is_clear = np.abs(covariance / covariance[0]) >= _CLEARLY * math.sqrt(math.log10(size) / size)
    last = _before_silence(is_clear[1:].tolist(), lags)
    if not last:
        return least
    at = np.arange(min(2 * last, reach) + 1)
    weight = np.clip(2 * (1 - at / (2 * last)), 0, 1)  # the flat-top window: 1 up to the middle, then falling
    sums = 2 * (weight * covariance[: at.size])
    slope, level = float((sums * at).sum()), float(sums.sum() - covariance[0])
    if level <= 0:
        return most
    length = (2 * slope**2 / (4 / 3 * level**2)) ** (1 / 3) * size ** (1 / 3)
    return int(min(max(round(length), least), most))


def _before_silence(is_clear: Sequence[bool], lags: int) -> int:
    """The last lag before a run of so many lags without a clear correlation."""
    for lag in range(len(is_clear)):
        if not any(is_clear[lag : lag + lags]):
            return lag
    return len(is_clear)


def _blocks(steps: Floats, length: int) -> Floats:
    """Every block of `length` consecutive steps, a row each; the first step follows the last one."""
    return np.lib.stride_tricks.sliding_window_view(np.concatenate((steps, steps[: length - 1])), length)


def _deviations(steps: Floats, length: int, typical: Callable[..., Floats], rng: np.random.Generator) -> Floats:
    """Deviations of `_RESAMPLES` resampled means (or medians) from that of all steps, widened if blocks are few."""
    size = steps.size
    pieces, at_once = -(-size // length), max(_MOST_AT_ONCE // size, 1)
    drawn = []
    for begin in range(0, _RESAMPLES, at_once):
        first: Ints = rng.integers(0, size, (min(at_once, _RESAMPLES - begin), pieces))
        rows = (first[:, :, None] + np.arange(length)).reshape(first.shape[0], -1)[:, :size] % size
        drawn.append(typical(steps[rows], axis=1))
    blocks = max(size / length, 1.5)
    return (np.concatenate(drawn) - typical(steps)) * math.sqrt(blocks / (blocks - 1))


# --- together --------------------------------------------------------------------------------------------------------


class _Drawn(Struct, frozen=True):
    """The drawn means of a side over its mean, and how many degrees of freedom their spread has."""

    shares: Floats
    freedom: float


def _interval(
    both: Sequence[Sequence[StepSample]], sides: Sequence[StepSide], typical: Callable[..., Floats]
) -> tuple[float | None, float | None]:
    if any(run.steps_ns.size < 2 for runs in both for run in runs) and any(side.runs < 2 for side in sides):
        return None, None
    rng = np.random.default_rng(_SEED)
    before, after = (_drawn(runs, side, typical, rng) for runs, side in zip(both, sides, strict=True))
    levels = [float(np.mean([typical(_scaled(run)) for run in runs])) for runs in both]
    middle = math.log(levels[1] / levels[0])
    drawn = np.log(np.maximum(after.shares, 1e-9)) - np.log(np.maximum(before.shares, 1e-9))
    wider = student(_freedom(before, after)) / NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    ends = np.quantile(drawn, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)) * wider + middle
    # Without what waiting for cores took of each side: where one side waited more, that may be all of the difference.
    waited = [-math.log(1 - min(float(np.mean([run.contended for run in runs])), _MOST_CONTENDED)) for runs in both]
    apart = waited[0] - waited[1]
    return math.expm1(ends[0] + min(apart, 0.0)), math.expm1(ends[1] + max(apart, 0.0))


def _drawn(
    runs: Sequence[StepSample], side: StepSide, typical: Callable[..., Floats], rng: np.random.Generator
) -> _Drawn:
    steps = [_scaled(run) for run in runs]
    levels = np.array([float(typical(each)) for each in steps])
    within = np.stack([
        _deviations(each, length, typical, rng) if each.size > 1 else np.zeros(_RESAMPLES)
        for each, length in zip(steps, side.blocks, strict=True)
    ])  # fmt: skip
    mean = float(levels.mean())
    if len(runs) == 1:
        between = np.exp(rng.normal(0, side.spread, _RESAMPLES))
        noise = float(within.var())
        blocks = max(steps[0].size / side.blocks[0] - 1, 1.0)
        whole = noise + float((side.spread * mean) ** 2)
        # How far a level drifts is known from few pieces; what is usual is taken as it is.
        drifting = (side.spread * mean) ** 4 / (_PIECES - 1) if side.spread_from == "drift" else 0.0
        unsure = noise**2 / blocks + drifting
        freedom = whole**2 / unsure if unsure else math.inf
        return _Drawn((mean + within[0]) / mean * between, freedom)
    chosen = rng.integers(0, len(runs), (_RESAMPLES, len(runs)))
    around = levels - mean
    spread = float(around.std(ddof=1))
    if spread:
        around = around * (side.spread * mean / spread) * math.sqrt(len(runs) / (len(runs) - 1))
    # One run that is drawn twice has other steps each time.
    at = (np.arange(_RESAMPLES)[:, None] + np.arange(len(runs)) * (_RESAMPLES // len(runs))) % _RESAMPLES
    # What other programs took in the hours of one side is the same for all of its runs: no mean is free of it.
    by_others = float(np.mean([contention(run.contended) for run in runs]))
    drawn = (mean + (around[chosen] + within[chosen, at]).mean(axis=1)) / mean
    return _Drawn(drawn * np.exp(rng.normal(0, by_others, _RESAMPLES)), len(runs) - 1)


def _freedom(before: _Drawn, after: _Drawn) -> float:
    """Degrees of freedom of the difference, by Welch and Satterthwaite."""
    each = [(float(side.shares.var()), side.freedom) for side in (before, after)]
    whole = sum(variance for variance, _ in each)
    if not whole:
        return math.inf
    return whole**2 / max(sum(variance**2 / freedom for variance, freedom in each), 1e-300)


def student(freedom: float, confidence: float = CONFIDENCE) -> float:
    """The two-sided quantile of Student's t (G. Hill, Communications of the ACM 13, algorithm 396, 1970)."""
    if not math.isfinite(freedom) or freedom > 1e6:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    tail, n = 1 - confidence, max(freedom, 1.0)
    if n < 1.5:
        return 1 / math.tan(tail * math.pi / 2)
    a = 1 / (n - 0.5)
    b = 48 / (a * a)
    c = ((20_700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    x = d * tail
    y = x ** (2 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(tail / 2)
        y = x * x
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (n + 1) / (
            n + 2
        ) + 1 / y
    return math.sqrt(n * y)
