"""Does the host of a late rank do more than the others', or the same more slowly?

A rank that logs or saves alone makes calls and ops that the others do not make. One on a busy or slow core makes the
same ones, and each takes longer. What waits for the device or for other ranks is left out: that is no work.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.grouping import weighted_median
from perfdoctor.metrics.host.pace import busy_ns, launching, waiting_calls
from perfdoctor.model.host_rows import nested_rows
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Floats
from perfdoctor.vocabulary.names.frameworks import alike_on_ranks

#: More than half of a time is called its cause.
MOST_OF_IT = 0.5
#: Rows of the host that every rank of a job has alike.
_SIGNALS = ("calls", "ops")
_NAMES = 8


class HostComparison(Struct, frozen=True):
    """One rank's host beside the middle one of the others, per step.

    `rows`, `other_rows`: calls and ops. `slower`: how many times as long the same ones take, the median by the
    time they usually take: one that stands still for long makes no slow host. `more_ns`: how long those
    take that the others do not make, `longer_ns` by how much longer its host works. `names`: what loses most, with its
    count, its mean time in ns, and the others' mean.
    """

    rows: float
    other_rows: float
    slower: float
    more_ns: float
    longer_ns: float
    names: tuple[tuple[str, float, float, float], ...]

    @property
    def has_more_work(self) -> bool:
        """Does what is made only there explain most of the time that this host works longer?"""
        return 0 < self.longer_ns < self.more_ns / MOST_OF_IT

    def is_same_work(self, tolerance: float) -> bool:
        """Are there as many calls and ops, within this share?"""
        return not self.has_more_work and abs(self.rows - self.other_rows) <= tolerance * self.other_rows


def compared(late: Place, others: Sequence[Place]) -> HostComparison | None:
    """The late rank's host beside the others'; None where one was not recorded while it launched the window's work."""
    if not others or not all(launching(place) for place in (late, *others)):
        return None
    count, total_ns = _by_name(late)
    known = [_by_name(place) for place in others]
    # By name the mean time on the middle one of the ranks that have it; 0 where none has.
    counts, totals = (np.stack([each[column] for each in known]) for column in (0, 1))
    usual_ns, has = np.zeros(count.size), (counts > 0).any(axis=0)
    means = np.divide(totals, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    usual_ns[has] = np.nanmedian(means[:, has], axis=0)
    common = (count > 0) & (usual_ns > 0)
    if not common.any():
        return None
    mean_ns = total_ns / np.maximum(count, 1)
    longer = busy_ns(late) / late.units - float(np.median([busy_ns(place) / place.units for place in others]))
    first = sorted(np.flatnonzero(common).tolist(), key=lambda at: -count[at] * (mean_ns[at] - usual_ns[at]))
    names = [value for signal in _SIGNALS for value in late.timeline[signal].name.mapped(alike_on_ranks).values]
    return HostComparison(
        rows=float(count.sum()),
        other_rows=float(np.median(counts.sum(axis=1))),
        slower=weighted_median((mean_ns / np.maximum(usual_ns, 1))[common], (count * usual_ns)[common]),
        more_ns=float((np.maximum(count - np.median(counts, axis=0), 0) * mean_ns).sum()),
        longer_ns=longer,
        names=tuple((names[at], float(count[at]), float(mean_ns[at]), float(usual_ns[at])) for at in first[:_NAMES]),
    )


def _by_name(place: Place) -> tuple[Floats, Floats]:
    """For each name in `_SIGNALS` the rows a step that began while work was launched, and their ns together.

    A row's time is its own, without that of rows inside it, which count themselves.
    """
    waits = waiting_calls(place)
    waited = waits.intervals
    counts, totals = [], []
    for signal in _SIGNALS:
        rows = nested_rows(place.timeline, place.rank, signal)
        start, end = rows.rows.start_ns, rows.rows.end_ns
        chosen = (launching(place).overlap_ns(start, start + 1) > 0) & (waited.overlap_ns(start, end) == 0)
        name = rows.rows.name.mapped(alike_on_ranks)
        codes, names = name.codes[chosen], len(name.values)
        counts.append(np.bincount(codes, minlength=names) / place.units)
        totals.append(np.bincount(codes, weights=rows.own(end - start)[chosen], minlength=names) / place.units)
    return np.concatenate(counts), np.concatenate(totals)
