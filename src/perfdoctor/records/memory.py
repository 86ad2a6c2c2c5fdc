"""What did the allocator hold on each device, and for whom?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Holder:
    """Memory that the same lines of code asked for: the innermost own line, it and its callers, what for, how much."""

    line: str
    stack: str
    category: str
    bytes: int
    count: int


@dataclass(frozen=True)
class MemoryUse:
    """What torch's allocator held on one device; -1 where the recording does not tell a number.

    The first four are its state at the end, as torch counts it itself: reserved from the driver, handed out, in use
    (handed out, or freed and still waited for by another stream), and asked for before rounding. `peak_bytes` is the
    most that was in use in the window of `events` changes, and at that moment: what was reserved, the free pieces of
    it, and who held it. `most_reserved_bytes` is the most that was ever reserved in the window. Of source `driver` all
    that CUDA handed out counts as reserved and in use, to libraries as well.
    """

    rank: int
    device: int
    source: Literal["snapshot", "profiler", "timeline", "driver"]
    events: int
    reserved_bytes: int
    allocated_bytes: int
    active_bytes: int
    requested_bytes: int
    peak_bytes: int
    peak_reserved_bytes: int
    most_reserved_bytes: int
    free_bytes: int
    free_pieces: int
    largest_free_bytes: int
    by_category: Mapping[str, int] = field(default_factory=dict)
    holders: tuple[Holder, ...] = ()
