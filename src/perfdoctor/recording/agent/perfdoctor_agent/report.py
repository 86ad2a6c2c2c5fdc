"""What does the agent of one process report to perfdoctor? One small JSON file per process, written atomically."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any


class AgentReport:
    """The report of one process. `state`: watching (torch was imported), recording, written, failed."""

    def __init__(self, folder: str, pass_name: str, torch_version: str, name: str = "") -> None:
        self.folder = folder
        self.name = name  # of the process, where its pid would not do: on several machines pids are the same
        self.facts: dict[str, Any] = {
            "pass": pass_name, "pid": os.getpid(), "parent": os.getppid(), "started_unix_ns": _started_unix_ns(),
            "command": [], "process_name": "", "job": "", "own_traces": [],
            "python": "{}.{}.{}".format(*sys.version_info[:3]), "torch": torch_version, "state": "watching",
            "steps_seen": 0, "steps_recorded": 0, "step_found_by": "", "rank": None, "world_size": None, "trace": "",
            "nvtx_ranges": 0, "watched_step_ns": 0,
            "unwatched_step_ns": 0, "unwatched_steps": 0, "unwatched_clock": "", "timed": {},
            "memory": {"kind": "", "device": -1, "samples": []}, "processor": {}, "loaders": [], "loader_trial": {},
            "held_ns": 0, "ends_late": False, "treated": {}, "stopped": False, "ended": False, "notes": [],
        }  # fmt: skip

    @property
    def whole_run_file(self) -> tuple[str, str]:
        """Folder and name of the file with the steps of the whole run; no report, by its name."""
        return self.folder, f"whole-run-{self.facts['pass']}-{self.name or self.facts['pid']}.steps"

    def note(self, text: str) -> None:
        if text not in self.facts["notes"]:
            self.facts["notes"].append(text)

    def withdraw(self, text: str) -> None:
        if text in self.facts["notes"]:
            self.facts["notes"].remove(text)

    def write(self, **facts: Any) -> None:
        """Update and store. A full disk or a missing folder must not disturb the program."""
        self.facts.update(facts, unix_ns=time.time_ns())
        path = os.path.join(self.folder, f"{self.facts['pass']}-{self.name or self.facts['pid']}.json")
        with contextlib.suppress(OSError):
            with open(path + ".tmp", "w", encoding="utf-8") as file:
                json.dump(self.facts, file)
            os.replace(path + ".tmp", path)


def _started_unix_ns() -> int:
    """When this process began, to a tick of 10 ms (proc(5), field 22); now, where that is not known."""
    now = time.time_ns()
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - int(age_s * 1e9) if age_s > 0 else now
