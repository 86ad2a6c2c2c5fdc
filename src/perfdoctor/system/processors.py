"""How many processors may perfdoctor use, how many worker processes are worth while, and what is the processor called?

Sources: admin-guide/cgroup-v2.rst for cpu.max, scheduler/sched-bwc.rst for cpu.cfs_quota_us.
"""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path

from perfdoctor.errors import UsageError
from perfdoctor.system.paths import text_of

#: How many worker processes; `--jobs` sets it, so that workers, and what they start, know of it.
JOBS = "PERFDOCTOR_JOBS"

_PROC = Path("/proc")
_CPUINFO = _PROC / "cpuinfo"
_CGROUPS = Path("/sys/fs/cgroup")


def worker_count() -> int:
    """How many processes may work at once: JOBS, else one for each of our cores. UsageError for a wrong JOBS."""
    asked = os.environ.get(JOBS, "").strip()
    if not asked:
        return max(1, math.ceil(own_cores()))
    if not (asked.isdecimal() and int(asked) > 0):
        raise UsageError(f"{JOBS} is no number of processes", do=f"Set it to 1 or more, or unset it: {JOBS}=4.")
    return int(asked)


def own_cores() -> float:
    """How many cores this process may keep busy, by its affinity and its control groups."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux
        allowed = os.cpu_count() or 1
    return min(allowed, quota_cores())


def quota_cores() -> float:
    """How many cores the control groups allow; infinite without a limit."""
    return min((_quota(folder) for folder in own_groups()), default=float("inf"))


def _quota(folder: Path) -> float:
    if len(both := text_of(folder / "cpu.max").split()) == 2:
        quota, period = both
    else:
        quota, period = (text_of(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else float("inf")


def own_groups() -> list[Path]:
    """The control groups of this process that may limit the processor, with those above them."""
    found = []
    for line in text_of(_PROC / "self/cgroup").splitlines():
        _, controllers, name = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            root = _CGROUPS
        elif "cpu" in controllers.split(","):
            root = next((each for each in (_CGROUPS / controllers, _CGROUPS / "cpu") if each.is_dir()), _CGROUPS)
        else:
            continue
        group = root / name.strip("/")
        found += [each for each in (group, *group.parents) if each == root or root in each.parents]
    return found


def processor_name() -> str:
    """Name of the processor, such as `AMD EPYC 7763 64-Core Processor`; its architecture if the system names none."""
    lines = text_of(_CPUINFO).splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in named if name), platform.processor() or platform.machine())
