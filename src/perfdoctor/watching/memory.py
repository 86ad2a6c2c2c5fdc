"""Does a process hold more and more memory? Samples at several scales of time, each of which must rise evenly.

Nine samples in their order by chance: once in 9!, 360,000 looks. That they lie on a line, and that it is 5 % of what is
held, and 64 MB, leaves out what fills at the start, and caches that have their size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

#: Samples of a scale; and how far the middle of a line may be off, as a share of what it rises.
_POINTS = 9
_BEND = 0.25
LEAST_SHARE, LEAST_BYTES = 0.05, 64 << 20
#: Samples at the start that are left out: the first batches, the optimizer's state, libraries.
_WARM_UP = 4


class Growth(Struct, frozen=True):
    """`bytes_per_second` over the last `seconds`; `held`: bytes now."""

    bytes_per_second: float
    seconds: float
    held: int


def growth(times_ns: Sequence[int], held: Sequence[int]) -> Growth | None:
    """The growth of what was held at these times; None where it does not grow, or not evenly. Longest scale first."""
    times, sizes = np.array(times_ns[_WARM_UP:], dtype=np.float64), np.array(held[_WARM_UP:], dtype=np.float64)
    every = (times.size - 1) // (_POINTS - 1)
    while every >= 1:
        picked = slice(times.size - 1 - every * (_POINTS - 1), None, every)
        found = _even(times[picked], sizes[picked])
        if found is not None:
            return found
        every //= 2
    return None


def _even(
    times: np.ndarray[tuple[int], np.dtype[np.float64]], sizes: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> Growth | None:
    rises, rise = np.diff(sizes), float(sizes[-1] - sizes[0])
    if (rises <= 0).any() or rise < max(LEAST_SHARE * sizes[0], LEAST_BYTES):
        return None
    line = sizes[0] + rise * (times - times[0]) / (times[-1] - times[0])
    if np.abs(sizes - line).max() > _BEND * rise:
        return None
    seconds = float(times[-1] - times[0]) / 1e9
    return Growth(rise / seconds, seconds, int(sizes[-1]))
