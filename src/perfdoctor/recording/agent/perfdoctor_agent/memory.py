"""How much memory does this process hold at a step's end? On a GPU what torch allocated, else what malloc allocated.

On a CPU the resident set alone would mislead: a profiler's data lies between the tensors, so memory that is returned to
malloc cannot be returned to the system, and the set grows although the training holds no more than before.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

#: malloc counts by walking through its free chunks, half a microsecond each. Above this CPU time of the thread sampling
#: is switched off, since it would slow the program.
_LONGEST_NS = 2_000_000
#: The limit for short steps: sampling must not cost more than the profiler that runs anyway. A sample takes 0.1 ms, and
#: 0.4 ms where the step has left the processor's caches: what counts is all of them together.
_MOST_OF_TIME, _JUDGED_BEHIND = 0.02, 4
_FIELDS = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]


class _MallInfo(ctypes.Structure):
    """struct mallinfo2 of glibc 2.33 and newer, see mallinfo(3)."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


class MemorySamples:
    """[ns since 1970, allocated, reserved] in bytes; all of one kind, cuda or heap; empty where it is unknown."""

    def __init__(self) -> None:
        self.kind, self.device = "", -1
        self.samples: list[list[int]] = []
        self.is_off = False
        self._mallinfo: Any = None
        self._spent_ns = 0  # behind the first sample, which loads libraries

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "device": self.device, "samples": self.samples}

    def sample(self, torch: Any) -> None:
        if self.is_off:
            return
        begun_ns = time.thread_time_ns()
        try:
            kind, device, held = self._held(torch)
        except Exception:
            self._off()
            return
        if (kind, device) != (self.kind, self.device):
            self.kind, self.device, self.samples = kind, device, []
        self.samples.append([time.time_ns(), *held])
        took_ns = time.thread_time_ns() - begun_ns
        if took_ns > _LONGEST_NS:
            self._off()
        elif self.kind != "cuda" and len(self.samples) > 1:  # torch's counters are cheap
            self._spent_ns += took_ns
            passed_ns = self.samples[-1][0] - self.samples[0][0]
            if len(self.samples) > _JUDGED_BEHIND and self._spent_ns > _MOST_OF_TIME * passed_ns:
                self._off()

    def heap_growth(self) -> int | None:
        """Bytes that malloc has given out since the first sample; None where that is not sampled."""
        return self.samples[-1][1] - self.samples[0][1] if self.kind == "heap" and self.samples else None

    def _off(self) -> None:
        self.samples, self.is_off = [], True

    def _held(self, torch: Any) -> tuple[str, int, tuple[int, int]]:
        cuda = torch.cuda
        if cuda.is_initialized():
            return "cuda", cuda.current_device(), (cuda.memory_allocated(), cuda.memory_reserved())
        if self._mallinfo is None:
            self._mallinfo = ctypes.CDLL(None).mallinfo2
            self._mallinfo.restype = _MallInfo
        info = self._mallinfo()
        with open("/proc/self/statm", "rb") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return "heap", -1, (info.uordblks + info.hblkhd, resident)
