"""Which processes belong to a recorded program, and how are all of them ended? Linux only, from /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from perfdoctor.system.paths import text_of

_SET_CHILD_SUBREAPER, _SET_PARENT_DEATH_SIGNAL = 36, 1
_STATE, _PARENT, _USER_TICKS, _SYSTEM_TICKS, _THREADS = 0, 1, 11, 12, 17  # places behind the name in /proc/PID/stat
_MOST_READINGS = 4


def adopt_orphans() -> None:
    """Make orphans of the program our children, so that they can be found and ended."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Let this child of ours end when its parent ends, for whatever reason."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _stat(pid: int) -> list[str] | None:
    text = text_of(f"/proc/{pid}/stat")
    return text[text.rindex(")") + 2 :].split() if text else None  # a name may hold blanks and brackets


def session_of(pid: int) -> int | None:
    """The process's session; None if it has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


def is_alive(pid: int) -> bool:
    """Does the process run? One that has ended and waits to be reaped does not."""
    stat = _stat(pid)
    return stat is not None and _lives(stat)


def command(pid: int) -> str:
    """The command line of a process, as /proc has it; "" if it does not run."""
    return (text_of(f"/proc/{pid}/cmdline") or "") if is_alive(pid) else ""


def system_call(pid: int, thread: int) -> list[str]:
    """The call that a thread waits in: its number, then its arguments in hexadecimal; of none, one word."""
    return text_of(f"/proc/{pid}/task/{thread}/syscall").split() or [""]


def is_stopped(pid: int) -> bool:
    """Has a signal stopped the process?"""
    stat = _stat(pid)
    return stat is not None and stat[_STATE] == "T"


def _lives(stat: list[str]) -> bool:
    # A zombie with threads: its main thread has ended, and the others go on.
    return stat[_STATE] not in "ZX" or int(stat[_THREADS]) > 1


def descendants(*roots: int, but: Collection[int] = ()) -> list[int]:
    """Living descendants of processes, nearest first. `but`: without these and their descendants."""
    found = _descendants(roots, but)
    for _ in range(_MOST_READINGS):  # a parent may end while /proc is read, and hide its children
        before, found = found, _descendants(roots, but)
        if found == before:
            break
    return found


def _descendants(roots: Iterable[int], but: Collection[int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 a Path an entry would be slow
        if entry.isdecimal() and (stat := _stat(int(entry))) and _lives(stat):
            children.setdefault(int(stat[_PARENT]), []).append(int(entry))
    found: list[int] = []
    level = list(roots)
    while level:
        level = [child for pid in level for child in children.get(pid, []) if child not in but]
        found += level
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes so far."""
    stats = [stat for pid in pids if (stat := _stat(pid))]
    return sum(int(stat[_USER_TICKS]) + int(stat[_SYSTEM_TICKS]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def any_runnable(pids: Iterable[int]) -> bool:
    """Is one of these processes at work, or ready to work where other programs have the cores?"""
    return any(stat[_STATE] == "R" for pid in pids if (stat := _stat(pid)))


def has_open(file: Path) -> bool:
    """Has a process that we may look at this file open?"""
    for entry in os.listdir("/proc"):  # noqa: PTH208 a Path an entry would be slow
        with contextlib.suppress(OSError):
            if entry.isdecimal() and any(_leads_to(f"/proc/{entry}/fd/{number}", file) for number in _opened(entry)):
                return True
    return False


def _opened(pid: str) -> list[str]:
    return os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208


def _leads_to(link: str, file: Path) -> bool:
    try:
        return os.readlink(link) == str(file)  # noqa: PTH115
    except OSError:  # it was closed meanwhile
        return False


def name_of(pid: int) -> str:
    """The name of a process, "" if it has ended. Unprintable characters, which it may contain, become "?"."""
    name = text_of(f"/proc/{pid}/comm").strip()
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap() -> Iterator[tuple[int, int]]:
    """Yield pid and wait status of each child that has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status
