"""Which of the training thread's ops does a rule about a run without a GPU count, and what time do they take?"""

from __future__ import annotations

from msgspec import Struct

from perfdoctor.model.intervals import Intervals


class HostOps(Struct, frozen=True):
    """`count` outermost ops, which take `total_ns` by themselves; `time`: with the Python around or between them."""

    count: int
    total_ns: int
    time: Intervals
