"""How much memory may a process take here, and how does it give back what it has freed?"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

from perfdoctor.system.paths import text_of

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


def limited(most_bytes: int) -> None:
    """Limit the address space of this process from now on, where the system can (not on Windows)."""
    try:
        import resource  # noqa: PLC0415 not on Windows
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes if hard < 0 else min(most_bytes, hard), hard))


def available_bytes() -> int:
    """Free bytes of the machine's memory, or half of all if that is unknown; at most the limit of the container."""
    limits = [int(text) for path in _LIMITS if (text := text_of(path).strip()).isdecimal()]
    return min([_of_machine(), *(limit for limit in limits if limit)])


def _of_machine() -> int:
    lines = text_of("/proc/meminfo").splitlines()
    with contextlib.suppress(ValueError, IndexError, StopIteration):
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):  # Windows
        return UNKNOWN_BYTES
