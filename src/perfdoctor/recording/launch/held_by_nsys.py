"""Does the library of nsys keep a program from ending, and how is it made to let go?

nsys (seen with 2023.4) has threads of its own in the program, which wait for descriptors that the library has opened.
A program that closes all descriptors (`os.closerange(3, …)`, as those do that become daemons) closes these, too. At
its end its main thread waits, in the library, for threads that nothing wakes, and killing nsys changes nothing.
A thread that waits in epoll is woken by SIGSTOP and SIGCONT (signal(7)), sees that it is to end, and the program ends
with its own exit code; in one run of five the library crashes on that way (SIGSEGV), behind all that the program does.

A program that still runs is left alone: it is held where no thread of it has used the processor for some time, a
thread of nsys waits for a descriptor that is closed, and the main thread waits as no Python does: for something on its
own stack, as C++ does in a destructor, or for the end of that very thread.
"""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from perfdoctor.recording.launch import processes
from perfdoctor.system.paths import text_of

#: A program that ends uses the processor in between.
_IDLE_S = 3.0
_CHECK_EVERY_S = 1.0
_STOPPING_S = 1.0
_THREAD = "[NSys"
#: Numbers of system calls: futex, and the two of epoll, where the machine has both.
_CALLS = {"x86_64": ("202", ("232", "281")), "aarch64": ("98", ("22",))}
_FUTEX_ARGUMENTS = 3
_EPOLL = "anon_inode:[eventpoll]"


class HeldByNsys:
    """Wakes programs that are held. One of them is woken as often as it is held again, each time after a wait."""

    def __init__(self) -> None:
        self._next_check = 0.0
        self._used: dict[int, tuple[float, float]] = {}  # by pid: processor time, and since when it is that

    def wake(self, pids: Iterable[int]) -> list[int]:
        """Wake those of these processes that are held, and return them. Does nothing if it was called just now."""
        now = time.monotonic()
        if now < self._next_check:
            return []
        self._next_check = now + _CHECK_EVERY_S
        woken = [pid for pid in pids if self._is_idle(pid, now) and is_held(pid)]
        for pid in woken:
            _stop_and_go_on(pid)
        return woken

    def _is_idle(self, pid: int, now: float) -> bool:
        """Has it used no processor time for `_IDLE_S`? Asked again only after as long: it may wait for hours."""
        used = processes.cpu_seconds([pid])
        before, since = self._used.get(pid, (-1.0, now))
        if used != before or now - since >= _IDLE_S:
            self._used[pid] = (used, now)
        return used == before and now - since >= _IDLE_S


def _stop_and_go_on(pid: int) -> None:
    """SIGCONT takes back a SIGSTOP that has not stopped the process yet."""
    processes.send([pid], signal.SIGSTOP)
    until = time.monotonic() + _STOPPING_S
    try:
        while not processes.is_stopped(pid) and time.monotonic() < until:
            time.sleep(_STOPPING_S / 100)
    finally:
        processes.send([pid], signal.SIGCONT)


def is_held(pid: int) -> bool:
    """Is it held now? False where that cannot be known."""
    futex, epolls = _CALLS.get(platform.machine(), ("", ()))
    number, *arguments = processes.system_call(pid, pid)
    if number != futex or len(arguments) < _FUTEX_ARGUMENTS:
        return False
    address, _, expected = (int(each, 16) for each in arguments[:_FUTEX_ARGUMENTS])
    held_by = [thread for thread in _threads_of_nsys(pid) if _waits_for_nothing(pid, thread, epolls)]
    # Who joins a thread waits until its number, which the kernel keeps at that address, becomes 0 (clone(2)).
    return expected in held_by or (bool(held_by) and _is_on_stack(pid, address))


def _threads_of_nsys(pid: int) -> list[int]:
    try:
        threads = [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 the names alone
    except OSError:
        return []
    return [thread for thread in threads if text_of(f"/proc/{pid}/task/{thread}/comm").startswith(_THREAD)]


def _waits_for_nothing(pid: int, thread: int, epolls: tuple[str, ...]) -> bool:
    """Is the epoll that this thread waits in closed? Another file may have its number since."""
    number, *arguments = processes.system_call(pid, thread)
    if number not in epolls or not arguments:
        return False
    try:
        return str(Path(f"/proc/{pid}/fd/{int(arguments[0], 16)}").readlink()) != _EPOLL
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _is_on_stack(pid: int, address: int) -> bool:
    for line in text_of(f"/proc/{pid}/maps").splitlines():
        if line.endswith("[stack]"):
            begin, _, end = line.split()[0].partition("-")
            return int(begin, 16) <= address < int(end, 16)
    return False
