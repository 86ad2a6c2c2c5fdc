"""Which processes wait in their main thread, where it may be called into, while another thread works?"""

from __future__ import annotations

import time
from collections.abc import Collection

from perfdoctor.recording.attaching import calling
from perfdoctor.recording.launch.processes import system_call
from perfdoctor.recording.tools.cpu import threads_of

#: Linux on x86-64: nanosleep, clock_nanosleep, poll, ppoll, select, pselect6, epoll_wait, epoll_pwait, epoll_pwait2,
#: wait4, waitid, pause, recvfrom, recvmsg, accept, accept4. Whoever waits in them holds no lock of the C library.
_WAITS = frozenset((35, 230, 7, 271, 23, 270, 232, 281, 441, 61, 247, 34, 45, 47, 43, 288))
#: futex(2) waits for locks, semaphores and conditions alike. glibc waits for its own locks, that of the allocator among
#: them, by FUTEX_WAIT, for semaphores and conditions, as Python's locks are, by FUTEX_WAIT_BITSET.
_FUTEX, _OPERATION, _WAIT_BITSET = 202, 127, 9
#: The same for `calling.call`.
WAITS = {"calls": sorted(_WAITS), "futex": [_FUTEX, _OPERATION, _WAIT_BITSET]}
#: A thread that trains uses more of a core than this; one that watches or writes a log now and then does not.
_LEAST_SHARE = 0.05


def main_thread_waits(pid: int) -> bool:
    """Does it wait in the kernel, and hold no lock of the C library? Not known of other processors than x86-64."""
    number, *arguments = system_call(pid, pid)
    if not calling.is_possible() or not number.isdecimal():  # "running"
        return False
    if int(number) == _FUTEX and len(arguments) > 1:
        return int(arguments[1], 16) & _OPERATION == _WAIT_BITSET
    return int(number) in _WAITS


def work_beside(pids: Collection[int], seconds: float) -> set[int]:
    """Return the processes whose main thread waits while another thread works, watched for so many `seconds`."""
    before = {pid: _used_beside(pid) for pid in pids if main_thread_waits(pid)}
    if before:
        time.sleep(seconds)
    return {
        pid
        for pid, used in before.items()
        if main_thread_waits(pid) and _used_beside(pid) - used >= _LEAST_SHARE * seconds * 1e9
    }


def _used_beside(pid: int) -> int:
    """What all but the main thread have used of cores, in ns."""
    return sum(each.cpu_ns for each in threads_of(pid) if each.thread != pid)
