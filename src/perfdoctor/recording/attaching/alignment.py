"""With which step does each rank begin to record, if it is to be the same one, and each counts from a step of its own?

Ranks of a job wait for each other in each step, so they end a step at about the same time: the counts belong together
whose times differ least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

#: From the decision to the last rank's reading of it: a thread of the program waits for Python's lock, 5 ms a time.
LEAD_NS = 200_000_000
#: With fewer steps in common the times may fit by chance.
_FEWEST = 3


def first_steps(ends: Mapping[int, tuple[int, Sequence[int]]], now_ns: int) -> dict[int, int]:
    """The count behind which each rank begins. `ends`: its count, and the times of its last steps' ends, in ns."""
    (first, (count, times)), *_ = ends.items()
    step_ns = median(b - a for a, b in pairwise(times)) if len(times) > 1 else 0
    ahead = int((now_ns - times[-1] + LEAD_NS) // step_ns) + 1 if step_ns else 1
    begin = {first: count + ahead}
    for rank, (other_count, other_times) in list(ends.items())[1:]:
        begin[rank] = other_count + ahead + _later(times, other_times)
    return begin


def _later(times: Sequence[int], others: Sequence[int]) -> int:
    """How many places behind its last one the other's step is that is the last of `times`; below 0: in front of it."""
    best, least = 0, float("inf")
    for shift in range(-len(times) - len(others), len(times) + len(others)):
        pairs = [
            abs(times[-1 - at] - others[-1 - at + shift])
            for at in range(len(times))
            if 0 <= len(others) - 1 - at + shift < len(others)
        ]
        if len(pairs) >= min(_FEWEST, len(times), len(others)) and median(pairs) < least:
            best, least = shift, median(pairs)
    return best
