"""Which updates of optimizers end a step, where a training has several of them?"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.timeline import Frame, Ints

#: Fewer repetitions than this are no rhythm.
_FEWEST = 3
#: More optimizers than this in one step have not been seen.
_MOST_OPTIMIZERS = 8
#: Updates come in rounds where this share of them is like the one a round before: the first one also makes its state.
_SAME_SHARE = 0.9


def most_regular(updates: Frame, launches: Frame) -> Frame:
    """Choose among several optimizers (GAN) the one whose updates come most evenly; ties go to the most frequent.

    torch calls the updates of all optimizers of a class alike: of these, the last one of each round counts.
    """
    best, best_key = updates.take(np.zeros(len(updates), dtype=bool)), (np.inf, 0)
    for name in dict.fromkeys(updates.name):
        rows = updates.take(updates.name.equals(name))
        rows = _last_of_rounds(rows, launches) if len(rows) >= 2 * _FEWEST else rows
        if len(rows) < _FEWEST:
            continue
        gaps = np.diff(rows.start_ns)
        key = (float(np.std(gaps) / max(np.mean(gaps), 1)), -len(rows))
        if key < best_key:
            best, best_key = rows, key
    return best


def _last_of_rounds(updates: Frame, launches: Frame) -> Frame:
    """Return all updates of one name, or the last one of each round where several optimizers have that name.

    What an update launches, and what is launched before it, says which optimizer it is. Times do not: a loader of two
    workers, or an evaluation after every fourth step, makes a rhythm as well.
    """
    begun = np.searchsorted(launches.start_ns, updates.start_ns)
    done = np.searchsorted(launches.start_ns, updates.end_ns, side="right")
    before = np.append(begun[0], begun[1:] - done[:-1])
    at_once = (before == 0).astype(np.int64)
    # What is launched before an update differs in rounds also where an evaluation follows each fourth one.
    for counts, most in ((done - begun, _MOST_OPTIMIZERS), (at_once, _MOST_OPTIMIZERS), (before, 2)):
        optimizers = _round(counts, most)
        if optimizers > 1:
            last = optimizers - 1
            while last + 1 < len(updates) and at_once[last + 1]:  # the recording began within a round
                last += 1
            return updates.take(np.arange(last, len(updates), optimizers))
    return updates


def _round(counts: Ints, most: int) -> int:
    """After how many do the `counts` come again, at the soonest; 1 if they do not within `most`."""
    for size in range(1, min(most, counts.size // _FEWEST) + 1):
        if np.mean(counts[size:] == counts[:-size]) >= _SAME_SHARE:
            return size
    return 1
