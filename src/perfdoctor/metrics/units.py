"""How do nanoseconds and shares become the numbers that a rule's summary names?"""

from __future__ import annotations


def ms(duration_ns: float) -> float:
    """Milliseconds."""
    return duration_ns / 1e6


def us(duration_ns: float) -> float:
    """Microseconds."""
    return duration_ns / 1e3


def mib(size_bytes: float) -> float:
    """Bytes in powers of 1024, as memory is counted."""
    return size_bytes / (1 << 20)


def percent(share: float) -> float:
    """A share of 1 as percent."""
    return share * 100
