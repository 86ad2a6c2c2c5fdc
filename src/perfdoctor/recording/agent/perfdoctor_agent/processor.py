"""What did this process use of the processor during the recorded steps? Read once before and once after them."""

from __future__ import annotations

import os
import resource
import threading
import time
from typing import Any


class ProcessorUse:
    """`facts` as JSON: differences of the kernel's counters over the recorded steps; empty where they are unknown."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self._before: dict[str, int] = {}

    def begin(self) -> None:
        """Read the counters on the thread that trains, before the first recorded step."""
        self.facts, self._before = {}, _quietly(_reading)

    def end(self, torch: Any) -> None:
        """Read them on the same thread after the last recorded step. Only the first end counts."""
        if not self._before or self.facts:
            return
        after, before = _quietly(_reading), self._before
        if not after or after["thread"] != before["thread"]:
            return
        used = {name: after[name] - before[name] for name in before if name not in ("unix_ns", "thread", "threads")}
        self.facts = {
            "start_unix_ns": before["unix_ns"], "end_unix_ns": after["unix_ns"], **used, "threads": after["threads"],
            **_quietly(lambda: _settings(torch)),
        }  # fmt: skip


def _reading() -> dict[str, int]:
    process, thread = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_THREAD)
    threads, own = os.listdir("/proc/self/task"), threading.get_native_id()
    return {
        "unix_ns": time.time_ns(), "thread": own, "threads": len(threads),
        "cpu_ns": round((process.ru_utime + process.ru_stime) * 1e9),
        "voluntary_switches": process.ru_nvcsw, "involuntary_switches": process.ru_nivcsw,
        "delay_ns": sum(delay_ns(each) for each in threads),
        "thread_cpu_ns": round((thread.ru_utime + thread.ru_stime) * 1e9),
        "thread_involuntary_switches": thread.ru_nivcsw, "thread_delay_ns": delay_ns(str(own)),
    }  # fmt: skip


def delay_ns(thread: str) -> int:
    """How long a thread has waited for a core, ready to run; 0 where the kernel does not count it."""
    try:
        with open("/proc/self/task/" + thread + "/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return 0


def _settings(torch: Any) -> dict[str, int]:
    """How many threads torch uses for one op and between ops, and how many cores this process may use."""
    return {
        "torch_threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "allowed_cores": len(os.sched_getaffinity(0)),
    }


def _quietly(read: Any) -> dict[str, int]:
    try:
        return read()
    except Exception:  # not Linux, or not permitted
        return {}
