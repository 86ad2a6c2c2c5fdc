"""What is set in a process that runs perfdoctor alone, and never in a user's program that imports it?"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from sqlite_utils.db import Database

#: Objects made until Python looks for cycles that nobody holds. By default, after 700, that is 3 % of a long diagnosis.
_COLLECTED_AFTER = 100_000
#: For the time in which numpy is imported. OpenBLAS starts a thread for every core, and each of them spins for some
#: 30 ms before it sleeps; nothing here multiplies matrices that are large enough for a second thread. numpy asks for
#: huge pages, which are slow to clear.
_FOR_NUMPY = {"OPENBLAS_NUM_THREADS": "1", "NUMPY_MADVISE_HUGEPAGE": "0"}
#: glibc's parameters (malloc.h) and what they are set to: larger blocks come from the system, and go back to it, one by
#: one; so much that is free at the end of the heap stays. 32 MB is the most that every glibc takes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES, _LARGE_BYTES = 256 << 20, 32 << 20

_is_own = False


def take() -> None:
    """Declare this process ours: the command line's, or one that was started to work for perfdoctor."""
    global _is_own  # noqa: PLW0603 it is a property of the process
    _is_own = True
    gc.set_threshold(_COLLECTED_AFTER)


def load_numpy() -> None:
    """Import numpy with one thread and memory that is used again, if this process is ours.

    A number of threads that the user has set is kept, and programs that we start see no difference.
    """
    if not _is_own or "numpy" in sys.modules:
        return
    _keep_freed()
    names = [name for name in _FOR_NUMPY if name not in os.environ]
    os.environ.update({name: _FOR_NUMPY[name] for name in names})
    try:
        import numpy as np  # noqa: F401, PLC0415
    finally:
        for name in names:
            del os.environ[name]


def _keep_freed() -> None:
    """Let glibc, where that is the C library, keep the memory of a freed array for the next one.

    By default it hands some MB back to the system, which must clear the pages again: a third of the processor time of a
    recording with a million kernels. The most that is held stays the same.
    """
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415 a command that only speaks needs none

    set_parameter = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_parameter is not None:
        set_parameter(_MMAP_THRESHOLD, _LARGE_BYTES)
        set_parameter(_TRIM_THRESHOLD, _KEPT_BYTES)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage in this context, if the process is ours: it would scan millions of dicts, and free none."""
    was_on = _is_own and gc.isenabled()
    if was_on:
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def switching_every(seconds: float) -> Iterator[None]:
    """Threads take turns after so long, if this process is ours, instead of after Python's 5 ms."""
    usual = sys.getswitchinterval()
    if _is_own:
        sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        if _is_own:
            sys.setswitchinterval(usual)


def database(connection: sqlite3.Connection) -> Database:
    """sqlite-utils on this connection, in a process of ours loaded without pandas, which takes a second to load."""
    hidden = _is_own and "pandas" not in sys.modules
    if hidden:
        sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        from sqlite_utils.db import Database  # noqa: PLC0415
    finally:
        if hidden:
            del sys.modules["pandas"]
    return Database(connection, recursive_triggers=False, execute_plugins=False)
