"""How do nanoseconds and shares become the numbers that a rule's summary names?"""

from __future__ import annotations


def ms(duration_ns: float) -> float:
    """A duration in milliseconds.

    Args:
        duration_ns: The duration in ns.

    Returns:
        Milliseconds.
    """
    return duration_ns / 1e6


def us(duration_ns: float) -> float:
    """A duration in microseconds.

    Args:
        duration_ns: The duration in ns.

    Returns:
        Microseconds.
    """
    return duration_ns / 1e3


def mib(size_bytes: float) -> float:
    """A size in powers of 1024, as memory is counted.

    Args:
        size_bytes: The size in bytes.

    Returns:
        MiB.
    """
    return size_bytes / (1 << 20)


def percent(share: float) -> float:
    """A share as percent.

    Args:
        share: The share, of which 1 is all.

    Returns:
        Percent.
    """
    return share * 100
