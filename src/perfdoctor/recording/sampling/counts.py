"""How many samples showed each stack? py-spy's Chrome trace says when a stack changed, and not how often it was seen.

py-spy sleeps before each sample, for times that are exponentially distributed (py-spy 0.4, src/timer.rs): one in
twenty is longer than three mean ones, and on a busy machine py-spy itself waits for a core. A stack that stayed for
50 ms at 60 samples a second may have been seen three times or once. Its sampling thread sleeps once for each sample
that is in time, which the kernel counts (`voluntary_ctxt_switches`); that number is read every 15 ms.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

#: How often the number is read: about as often as samples are taken.
READ_S = 0.015
#: Processor time of waking up for that, and of reading the number of one py-spy: 120 µs together (EPYC at 2.2 GHz).
_WAKE_S, _ONE_S = 0.000_085, 0.000_035
#: A change of stacks that is further from any sample was seen by one that was late, or by none that is known.
_NEAR_NS = int(READ_S * 1e9)
#: Of the changes. With fewer near a sample the kernel counts something else.
_FEWEST_NEAR = 0.5
_SLEEPS = b"\nvoluntary_ctxt_switches:"


def cores_used(processes: int) -> float:
    """Cores that counting takes where so many processes are sampled."""
    return (_WAKE_S + processes * _ONE_S) / READ_S


class SampleClock:
    """The times at which one py-spy took its samples: `taken_unix_ns` since 1970, to some ms."""

    def __init__(self, pid: int) -> None:
        self.taken_unix_ns: list[int] = []
        self.status = _sampling_thread(pid)
        self.sleeps, self.read_ns = self._sleeps(), 0

    def read(self, now_unix_ns: int) -> None:
        """Samples since the last time are spread evenly over the time since then."""
        sleeps, before_ns = self._sleeps(), self.read_ns or now_unix_ns
        new, self.sleeps, self.read_ns = sleeps - self.sleeps, sleeps, now_unix_ns
        since_ns = now_unix_ns - before_ns
        self.taken_unix_ns += [before_ns + since_ns * (2 * number + 1) // (2 * new) for number in range(new)]

    def close(self) -> None:
        if self.status >= 0:
            os.close(self.status)
            self.status = -1

    def _sleeps(self) -> int:
        with contextlib.suppress(OSError, ValueError, IndexError):
            if self.status >= 0:
                return int(os.pread(self.status, 4096, 0).partition(_SLEEPS)[2].split(None, 1)[0])
        return getattr(self, "sleeps", 0)  # it has ended


def _sampling_thread(pid: int) -> int:
    """The kernel's file on py-spy's sampling thread, open; -1 if unknown."""

    def used_ns(thread: Path) -> int:
        return int((thread / "schedstat").read_bytes().split()[0])

    try:
        threads = [each for each in Path(f"/proc/{pid}/task").iterdir() if each.name != str(pid)]
        # It has read the program's symbols by now, which took more of the processor than other threads did.
        return os.open(max(threads, key=used_ns) / "status", os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return -1


def matched(changes_ns: Sequence[int], taken_ns: Sequence[int]) -> list[int]:
    """The number of the sample that saw each change of a stack: the nearest, or for two at one time successive ones.

    Both `changes_ns` and `taken_ns`, when samples were taken, ascend. Empty where they do not fit each other.
    """
    found: list[int] = []
    near = 0
    for at_ns in changes_ns:
        number = _nearest(at_ns, taken_ns, found[-1] if found else 0)
        is_seen = bool(found) and found[-1] == number
        if is_seen and number + 1 < len(taken_ns) and abs(taken_ns[number + 1] - at_ns) < _NEAR_NS:
            number += 1
        near += abs(taken_ns[number] - at_ns) < _NEAR_NS if taken_ns else 0
        found.append(number)
    return found if near >= _FEWEST_NEAR * len(found) else []


def _nearest(at_ns: int, taken_ns: Sequence[int], first: int) -> int:
    after = bisect_left(taken_ns, at_ns, lo=min(first, len(taken_ns)))
    both = [number for number in (after - 1, after) if first <= number < len(taken_ns)]
    return min(both, key=lambda number: abs(taken_ns[number] - at_ns), default=first)
