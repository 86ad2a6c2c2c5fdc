"""What did the counters measure while kernels of each kind ran, though a sample is longer than most kernels?

A sample of 100 µs shows the mean of all that ran in it. What each kind of kernels contributes follows from many samples
with different shares of each: the least squares of

    value of a sample = sum over kinds (rate of the kind × share of the sample in which it ran)

with idle time and copies as kinds of their own. A kind that nearly fills its samples gets their mean. The standard
error allows for any spread of the residuals (White, Econometrica 48(4), 1980): kinds that only ever run together cannot
be separated, their errors are large, and their rates unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.counters.samples import LEAST_SAMPLES, CounterSamples, usable
from perfdoctor.metrics.grouping import sums
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Floats, Frame, Ints, Mask

#: The counters of which rates are found: `dram_share` is read and written together.
RATES = ("sm_active_share", "sm_issue_share", "tensor_active_share", "dram_share")
#: A rate is unknown where twice its standard error, which 95 % of errors are below, exceeds this. Kernels of 5 µs among
#: others come out up to 4 points off on an A100, though their standard errors are 1: rates change within a kernel, too.
_ERRORS, _MOST_ERROR = 2, 0.05
#: Kinds with the most time are separated; all others are one. And as many samples decide: 10 s at the usual rate.
_MOST_KINDS, _MOST_SAMPLES = 48, 100_000
#: A counter of which more samples lack a value is not known.
_MOST_UNKNOWN = 0.5
#: So many samples are a dense matrix at a time, of 4 MB.
_CHUNK = 10_000
#: Directions of the scaled normal equations that are nothing but rounding, and how near to 1 a separated kind is.
_SINGULAR, _TOLD = 1e-9, 1e-3


class Rates(Struct, frozen=True):
    """The rate of each counter while kernels of each kind ran, as shares of the peak; NaN where unknown.

    `rates` and `errors`, the standard errors, have a row a kind and a column a counter; `samples` says how many samples
    any kernel of the kind ran in. `idle`: the rates while nothing of ours ran.
    """

    rates: Floats
    errors: Floats
    samples: Ints
    idle: Floats

    def of(self, column: str) -> Floats:
        """The rates of one of RATES, an element a kind."""
        return self.rates[:, RATES.index(column)]


class _Shares(Struct, frozen=True):
    """Which share of each of `count` samples each of `kinds` ran in: an element a pair of both, samples ascending."""

    sample: Ints
    kind: Ints
    share: Floats
    count: int
    kinds: int

    def chunks(self) -> Iterator[tuple[slice, Floats]]:
        """Some samples after the other, each time a row a sample and a column a kind; the last kind is idle time."""
        for first in range(0, self.count, _CHUNK):
            last = min(first + _CHUNK, self.count)
            rows = slice(*np.searchsorted(self.sample, (first, last)))
            cell = (self.sample[rows] - first) * self.kinds + self.kind[rows]
            cells = sums(cell, self.share[rows], (last - first) * self.kinds)
            yield slice(first, last), cells.reshape(-1, self.kinds)


def _usual(rows: Frame) -> Floats:
    """RATES of each sample: a row a sample, a column a counter."""
    dram = rows.floats("dram_read_share") + rows.floats("dram_write_share")
    dram = np.where(np.isnan(dram), rows.floats("dram_active_share"), dram)
    return np.stack([dram if name == "dram_share" else rows.floats(name) for name in RATES], axis=1)


def rates_of(place: Place, kind: Ints, size: int, counters: Callable[[Frame], Floats] = _usual) -> Rates | None:
    """The rates of kinds of kernels and collectives inside the window; None where the counters are not known.

    `kind`: for each row of `place.kernels` and then of `place.collectives` its kind, from 0 to `size` - 1. `counters`:
    what is found of samples, a row a sample and a column a counter; RATES if nothing else is given.
    """
    found = usable(place)
    if found is None or not kind.size:
        return None
    work = [place.kernels, place.collectives, place.copies]
    longest = np.argsort(-sums(kind, _joined(work[:2], "duration_ns"), size), kind="stable")[:_MOST_KINDS]
    others, copies = longest.size, longest.size + 1
    idle = copies + 1
    inner = np.full(size, others)
    inner[longest] = np.arange(longest.size)
    kinds = np.concatenate((inner[kind], np.full(len(place.copies), copies)))
    samples = _inside(found, place.window)
    if samples.size < LEAST_SAMPLES:
        return None
    values = counters(found.rows.take(samples))
    unknown = np.isnan(values)
    # A counter that hardly ever has a value must not take the others' samples.
    is_known: Mask = unknown[:, unknown.mean(axis=0) < _MOST_UNKNOWN].sum(axis=1) == 0
    shares, used = _shares(found.starts[samples], found.ends[samples], work, kinds, idle, is_known)
    if used.size < LEAST_SAMPLES:
        return None
    solved, errors = _solved(shares, values[used])
    counts = np.bincount(np.unique(shares.sample * shares.kinds + shares.kind) % shares.kinds, minlength=idle + 1)
    known = np.where(
        (_ERRORS * errors <= _MOST_ERROR) & (counts >= LEAST_SAMPLES)[:, None], np.clip(solved, 0, 1), np.nan
    )
    rates = np.full((size, values.shape[1]), np.nan)
    spread = rates.copy()
    count = np.zeros(size, np.int64)
    rates[longest], spread[longest], count[longest] = known[:others], errors[:others], counts[:others]
    return Rates(rates, spread, count, known[idle])


def _joined(frames: Sequence[Frame], what: str) -> Ints:
    return np.concatenate([getattr(frame, what) for frame in frames])


def _inside(found: CounterSamples, window: Intervals) -> Ints:
    """The samples that lie in the window as a whole."""
    length = found.ends - found.starts
    return np.flatnonzero((length > 0) & (window.overlap_ns(found.starts, found.ends) == length))


def _shares(
    starts: Ints, ends: Ints, work: Sequence[Frame], kinds: Ints, idle: int, is_known: Mask
) -> tuple[_Shares, Ints]:
    """The shares of the samples in which any work ran, and which of the samples these are."""
    begin, end = _joined(work, "start_ns"), _joined(work, "end_ns")
    first = np.maximum(np.searchsorted(ends, begin, "right"), 0)
    count = np.maximum(np.searchsorted(starts, end, "left") - first, 0)
    row = np.repeat(np.arange(begin.size), count)
    sample = np.arange(row.size) - np.repeat(np.cumsum(count) - count, count) + first[row]
    ns = np.minimum(end[row], ends[sample]) - np.maximum(begin[row], starts[sample])
    kept = is_known[sample] & (ns > 0)
    used = np.unique(sample[kept])[:_MOST_SAMPLES]
    kept &= np.isin(sample, used)
    row, sample, ns = row[kept], sample[kept], ns[kept]
    busy = Intervals.of(begin, end).overlap_ns(starts[used], ends[used])
    length = (ends - starts)[used]
    number = np.concatenate((np.searchsorted(used, sample), np.arange(used.size)))
    kind = np.concatenate((kinds[row], np.full(used.size, idle)))
    share = np.concatenate((ns / length[number[: ns.size]], 1 - busy / length))
    order = np.argsort(number, kind="stable")
    kept = order[share[order] > 0]
    return _Shares(number[kept], kind[kept], share[kept], used.size, idle + 1), used


def _solved(shares: _Shares, values: Floats) -> tuple[Floats, Floats]:
    """The rates, a row a kind and a column a counter, and their standard errors; infinite where no sample shows it."""
    normal, right = np.zeros((shares.kinds, shares.kinds)), np.zeros((shares.kinds, values.shape[1]))
    for rows, part in shares.chunks():
        normal += part.T @ part
        right += part.T @ values[rows]
    scale = np.sqrt(np.maximum(np.diag(normal), np.finfo(float).tiny))
    inverse = np.linalg.pinv(normal / np.outer(scale, scale), rcond=_SINGULAR, hermitian=True) / np.outer(scale, scale)
    # What cannot be separated: `inverse @ normal` is not 1 in its place.
    is_told = np.abs(np.diag(inverse @ normal) - 1) < _TOLD
    rates = inverse @ right
    spread = np.zeros((values.shape[1], shares.kinds, shares.kinds))
    for rows, part in shares.chunks():
        left = np.square(values[rows] - part @ rates)
        for each in range(values.shape[1]):
            spread[each] += (part * left[:, each, None]).T @ part
    free = max(shares.count - int(is_told.sum()), 1)
    variance = np.stack([np.diag(inverse @ each @ inverse) for each in spread], axis=1) * shares.count / free
    return rates, np.where(is_told[:, None], np.sqrt(np.maximum(variance, 0)), np.inf)
