"""May the GPU's own counters be recorded here, and by which options of nsys?

nsys samples them beside its trace: how busy SMs, tensor cores, memory and links are. The driver may restrict them to an
administrator, and serves one tool at a time. The set is left to nsys, which takes the general one of each GPU.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.recording.tools.nsys import Nsys, output_of
from perfdoctor.system.paths import text_of
from perfdoctor.system.toml_tables import shipped_table

PERMIT = (
    "load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0, or run as root (in a container: with"
    " --cap-add=SYS_ADMIN)"
)
#: The driver lets a process with one of these read the counters: CAP_SYS_ADMIN, CAP_PERFMON.
_MAY_PROFILE = 1 << 21 | 1 << 38
#: Its name changed with the versions.
_OPTIONS = ("gpu-metrics-devices", "gpu-metrics-device")
#: What `--gpu-metrics-devices=help` lists: `0: NVIDIA A100 PCI[0000:07:00.0]`, `all: Select all supported GPUs`.
_LISTED = regex(r"^\s*(\d+|all|[a-z]+-visible)\s*: *(.*)$", re.MULTILINE)
#: DCGM's programs. They hold the counters only while somebody watches its profiling fields.
_OTHERS = ("nv-hostengine", "dcgm-exporter")

#: nsys's default. Kernels of 100 µs then have a sample each, and shorter ones a mean over their runs.
_MOST_HZ = 10_000
#: A mean over the steps is still one of thousands of samples, and a second adds as many rows as its calls of CUDA.
_LEAST_HZ = 1_000
#: How many rows the table may have: they are exported and read in a few seconds.
_ROWS = 10_000_000
#: The counters of a general set: 22 on an A100. The steps of large trainings take about a second.
_COUNTERS, _STEP_S = 25, 1.0


class GpuCounters(Struct, frozen=True):
    """Which `devices` the nsys `option` names; else `trouble`, why nothing is recorded, with what to `do`.

    `doubt`: who else may hold the counters.
    """

    option: str = ""
    devices: str = ""
    trouble: str = ""
    do: str = ""
    doubt: str = ""

    def options(self, nsys: Nsys, *, gpus: int, steps: int) -> dict[str, str]:
        """The options of `nsys profile` for a window of so many steps of so many GPUs; none where it cannot record.

        `steps` is 0 where the whole program is recorded.
        """
        if not self.option:
            return {}
        hz = _ROWS / (_COUNTERS * max(gpus, 1) * steps * _STEP_S) if steps else _LEAST_HZ
        frequency = str(round(min(max(hz, _LEAST_HZ), _MOST_HZ)))
        known = {"gpu-metrics-frequency": frequency} if nsys.has("gpu-metrics-frequency") else {}
        return {self.option: self.devices, **known}


def permission_trouble(
    params: Path = Path("/proc/driver/nvidia/params"), status: Path = Path("/proc/self/status")
) -> str:
    """Why the GPU's counters may not be read here, and what to do; "" if they may, or if that is unknown."""
    restriction = r"^(?:RmProfilingAdminOnly|RestrictProfilingToAdminUsers): *1\b"
    # Root in a container is not enough: the driver checks the capability.
    effective = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", text_of(status), re.MULTILINE)
    may_profile = bool(int(effective[1], 16) & _MAY_PROFILE) if effective else os.geteuid() == 0
    if may_profile or not re.search(restriction, text_of(params), re.MULTILINE):
        return ""
    return f"only an administrator may read the GPU's performance counters (ERR_NVGPUCTRPERM): {PERMIT}"


def find(nsys: Nsys | None, permission: str, processes: Path = Path("/proc")) -> GpuCounters:
    """What this nsys would sample here. `permission`: why the driver refuses, "" if it does not."""
    option = next((each for each in _OPTIONS if nsys and nsys.has(each)), "")
    if nsys is None or not option:
        return GpuCounters(trouble="no nsys that samples them", do="Install Nsight Systems 2021.2 or newer.")
    if permission:
        what, _, do = permission.partition(": ")
        return GpuCounters(trouble=what, do=f"{do[0].upper()}{do[1:]}.")
    try:
        printed = output_of(nsys.path, "profile", f"--{option}=help")
    except (OSError, subprocess.SubprocessError) as error:
        return GpuCounters(trouble=f"nsys does not list what it samples: {error}", do="Try nsys by hand.")
    listed = dict(_LISTED.findall(printed))
    devices = next((each for each in ("cuda-visible", "all") if each in listed), "")
    if not devices and sum(map(str.isdigit, listed)) == 1:  # a GPU that is divided has no `all`
        (devices,) = listed
    if devices:
        return GpuCounters(option, devices, doubt=" and ".join(_running(processes)))
    what, do = explain(printed) or ("nsys lists no GPU whose counters it samples", "Update Nsight Systems.")
    return GpuCounters(trouble=what, do=do)


def explain(printed: str) -> tuple[str, str] | None:
    """Why nsys did not sample counters, by what it printed, and what to do; None where it says nothing of it."""
    for known in shipped_table(Path(__file__).with_suffix(".toml"))["trouble"]:
        if re.search(known["message"], printed):
            return str(known["meaning"]), str(known["do"]).replace("{permit}", f"{PERMIT[0].upper()}{PERMIT[1:]}.")
    return None


def _running(processes: Path) -> Iterator[str]:
    names = {text_of(file).strip() for file in processes.glob("[0-9]*/comm")}
    return (name for name in _OTHERS if name in names)
