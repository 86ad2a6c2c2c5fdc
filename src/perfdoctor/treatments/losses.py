"""Is the treated training the same one? Its losses against the untreated ones of the same steps.

Programs that repeat themselves exactly are the rule on a CPU: there any difference is one. Whether it is only another
order of roundings is known by a control: an untreated run whose parameters were moved by some roundings before the
first update. Differences that stay within what becomes of that, and of the untreated program against itself, are
rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfdoctor.model.columns import Floats
from perfdoctor.treatments.records import LossDifference

#: The control is moved once, by the roundings of one sum of a thousand terms; a treatment rounds otherwise in each op
#: of each step. Differences of independent roundings grow with the root of their number: of a hundred, tenfold.
_OFTEN = 10.0
#: Whose first losses differ by more than this began with other weights or other data. The first loss of a language
#: model from scratch is near the logarithm of its vocabulary whatever the seed: those of seven seeds differed by 4e-4
#: to 1e-3, and batches of a hundred times as many tokens differ by a tenth of that. Roundings in fp32 move it by 1e-6.
_SAME_BEGIN = 1e-5


def compared(
    untreated: Sequence[Sequence[float]], treated: Sequence[Sequence[float]], control: Sequence[float] | None
) -> LossDifference:
    """The losses of the treated runs against those of the untreated ones; `control`: of the run that was moved."""
    sides = [[each for each in side if len(each)] for side in (untreated, treated)]
    if not all(sides):
        return LossDifference("unknown", "no backward pass was seen")
    first, *others = sides[0]
    own = _running([_differences(first, each) for each in others], len(first))
    theirs = _running([_differences(first, each) for each in sides[1]], len(first))
    count = min(len(first), *(len(each) for each in sides[1]))
    largest, own_largest = float(theirs[:count].max()), float(own[:count].max())
    if others and float(own[0]) > _SAME_BEGIN:
        why = "untreated runs differ in their first loss, as without a seed: seed the program to have it judged"
        return LossDifference("not judged", why, count, largest, own_largest)
    if largest == 0:
        return LossDifference("equal", losses=count, own=own_largest)
    carried = _running([_differences(first, control)], len(first)) if control is not None and len(control) else None
    allowed = np.maximum(own, 0 if carried is None else _OFTEN * carried)
    if carried is not None and allowed.size > 1:
        allowed[0] = max(allowed[0], allowed[1])  # the control moves behind the first loss
    beyond = np.flatnonzero(theirs[:count] > allowed[:count])
    moved = None if carried is None else float(carried[:count].max())
    if not beyond.size:
        return LossDifference("rounding", "", count, largest, own_largest, moved)
    return LossDifference("differs", f"from loss {int(beyond[0]) + 1} on", count, largest, own_largest, moved)


def not_finite_from(untreated: Sequence[Sequence[float]], treated: Sequence[Sequence[float]]) -> int:
    """From which loss on, counted from 1, has a treated run no numbers though all untreated ones have? 0: from none.

    A run that has numbers again does not count: in float16 an update may be left out until the scale fits.
    """
    found: list[int] = []
    for each in treated:
        count = min([len(each), *(len(side) for side in untreated)])
        theirs = np.isfinite(np.asarray(each[:count], np.float64))
        own = np.isfinite(np.array([side[:count] for side in untreated], np.float64)).all(axis=0)
        good = np.flatnonzero(theirs | ~own)
        last = int(good[-1]) + 1 if good.size else 0
        if last < count:
            found.append(last + 1)
    return min(found, default=0)


def _differences(one: Sequence[float], other: Sequence[float]) -> Floats:
    """Relative differences of the losses that both have; infinite where only one is a number."""
    count = min(len(one), len(other))
    a, b = (np.asarray(each[:count], np.float64) for each in (one, other))
    scale = np.maximum(np.maximum(np.abs(a), np.abs(b)), np.finfo(np.float64).tiny)
    with np.errstate(invalid="ignore"):
        found = np.abs(a - b) / scale
    both = np.isnan(a) & np.isnan(b) | (a == b)
    return np.where(both, 0.0, np.where(np.isfinite(found), found, np.inf))


def _running(rows: Sequence[Floats], size: int) -> Floats:
    """The largest difference so far, at each loss, of all rows."""
    found = np.zeros(max(size, 1))
    for row in rows:
        found[: row.size] = np.maximum(found[: row.size], row)
    return np.maximum.accumulate(found)
