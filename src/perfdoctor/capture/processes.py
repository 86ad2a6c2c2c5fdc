"""Which processes belong to a recorded program, and how are all of them ended? Linux only, from /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_SET_CHILD_SUBREAPER, _SET_PARENT_DEATH_SIGNAL = 36, 1
_STATE, _PARENT, _USER_TICKS, _SYSTEM_TICKS = 0, 1, 11, 12  # positions behind the name in /proc/PID/stat


def adopt_orphans() -> None:
    """Whatever the program leaves behind becomes our child, so that it can be found and ended."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """For a child of ours: end when we end, however that happens."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()  # a name may hold blanks and brackets


def is_alive(pid: int) -> bool:
    """Does it run? One that has ended and waits to be reaped does not."""
    stat = _stat(pid)
    return stat is not None and stat[_STATE] not in "ZX"


def descendants(root: int) -> list[int]:
    """Living children of a process, their children, and so on; nearest first."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 a Path an entry would be slow
        if entry.isdigit() and (stat := _stat(int(entry))) and stat[_STATE] not in "ZX":
            children.setdefault(int(stat[_PARENT]), []).append(int(entry))
    found: list[int] = []
    level = [root]
    while level:
        level = [child for pid in level for child in children.get(pid, [])]
        found += level
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes so far."""
    stats = [stat for pid in pids if (stat := _stat(pid))]
    return sum(int(stat[_USER_TICKS]) + int(stat[_SYSTEM_TICKS]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap() -> Iterator[tuple[int, int]]:
    """(pid, wait status) of children that have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def end_all(pids: Iterable[int], grace_s: float) -> None:
    """Ask each to end, and kill those that have not after the grace time, with whatever they started meanwhile."""
    left = [pid for pid in pids if is_alive(pid)]
    send(left, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        list(reap())
        left = [pid for pid in left if is_alive(pid)]
    send(left, signal.SIGKILL)
