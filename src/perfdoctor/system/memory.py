"""How much memory may a process take here, and how does it give back what it has freed?"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

#: Assumed if the system does not report its memory: what small machines have.
UNKNOWN_BYTES = 4 << 30
#: The limits of a container, of both versions of control groups.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def give_back() -> None:
    """Return freed memory to the system now, if the C library is glibc.

    By itself glibc returns only what is free at the end of its heap. After a long trace was read, half of the heap is
    free, but little at its end: a million small objects were made and dropped between columns that grew.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def available_bytes() -> int:
    """Free bytes of the machine's memory, or half of all if that is unknown; at most the limit of the container."""
    return min([_of_machine(), *(limit for path in _LIMITS if (limit := _number(path)))])


def _of_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):  # Windows
        return UNKNOWN_BYTES


def _number(path: Path) -> int:
    """The number that a file holds; 0 if it is missing or holds no number."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
