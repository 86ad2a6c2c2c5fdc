"""How much memory may a process take here, and what becomes of what it frees?"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

#: Where the system does not say: what small machines have.
UNKNOWN_BYTES = 4 << 30
#: The limits of a container, of both versions of control groups.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

#: glibc's parameters (malloc.h) and what they are set to: larger blocks come from the system, and go back to it, one by
#: one; so much that is free at the end of the heap stays. 32 MB is the most that every glibc takes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES, _LARGE_BYTES = 256 << 20, 32 << 20


def keep_freed() -> None:
    """What one array frees is there for the next, where the C library is glibc. Before numpy is imported.

    By default glibc hands a freed array of some MB back to the system, which must clear its pages again for the next,
    and numpy asks for huge pages, which are slow to clear: of a recording with a million kernels that is a third of the
    processor time. The most that is held stays the same.
    """
    if sys.platform != "linux":
        return
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    set_parameter = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_parameter is not None:
        set_parameter(_MMAP_THRESHOLD, _LARGE_BYTES)
        set_parameter(_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back() -> None:
    """What was freed between things that stay goes back to the system now, where the C library is glibc.

    By itself glibc gives back what is free at the end of its heap alone. Behind the reading of a long trace, which
    makes and drops a million small things beside columns that grow, half of the heap is free, and little at its end.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def available_bytes() -> int:
    """What is free of the machine's memory, or half of all where that is not known; no more than a container has."""
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
    """0 where there is none, or no limit."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
