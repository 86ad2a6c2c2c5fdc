"""How much can be won of a stretch of time? A range from assumptions that the rule declares."""

from __future__ import annotations

from perfdoctor.records.savings import Saving


def saving(removable_ns: int, low: float, likely: float, high: float = 1.0) -> Saving:
    """Shares of the time that a fix may remove, as a Saving in ns."""
    return Saving(int(removable_ns * low), int(removable_ns * likely), int(removable_ns * high))
