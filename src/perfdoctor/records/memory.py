"""How much memory was allocated on each device, for what, and by which lines?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field


class Holder(Struct, frozen=True):
    """Memory allocated by the same source lines. `line`: the innermost of user code; `stack`: it and its callers."""

    line: str
    stack: str
    category: str
    bytes: int
    count: int


class MemoryUse(Struct, frozen=True):
    """The memory of torch's allocator on one device; -1 where a number was not recorded.

    `reserved_bytes` to `requested_bytes` are its state at the end, in torch's terms: reserved from the driver,
    allocated, active (allocated, or freed and still used by another stream), and requested before rounding.
    `peak_bytes` is the maximum that was active in the window of `events` changes (allocated, where only that was
    recorded). `peak_reserved_bytes`, the free blocks, `by_category` and `holders` are of that moment.
    `most_reserved_bytes` is the maximum reserved in the window, `first_reserved_bytes` what was reserved when it began.
    With source `driver`, everything that CUDA allocated, for libraries too, counts as reserved and in use.
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
    first_reserved_bytes: int = -1
