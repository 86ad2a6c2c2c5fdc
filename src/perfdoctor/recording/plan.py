"""Which passes will run, in which order, and why is one left out?

torch.profiler's CUDA activities and nsys's CUDA trace both need CUPTI, which serves one of them at a time. So the
default with a GPU is one nsys pass in which the agent marks steps and records the CPU's ops: kernels and ops of one
run, on one clock. Without nsys, or where it does not know the program's CUDA, it is one torch pass. ncu, and a torch
pass beside nsys, run the program again, and are not default.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.launch import program
from perfdoctor.recording.tools import gpu_counters, nsys, py_spy
from perfdoctor.recording.tools import nvml as device
from perfdoctor.system import tool_process

PASSES = ("nsys", "torch", "ncu")
AUTO = "auto"
#: nsys writes a raw stream of 25 MB for a program that does nothing, then a report, then an export: a few times that.
LEAST_FREE_BYTES = 1 << 30
#: nsys' library opens ten descriptors in each process of the program, and torch.profiler some; a training whose loader
#: has two workers needs 20 itself.
LEAST_DESCRIPTORS = 64


class Machine(Struct, frozen=True):
    """What can be recorded here: the program, tools and GPUs. Inspected once, without changing anything."""

    program: program.Program
    nsys: nsys.Nsys | None
    ncu: str | None
    devices: device.Devices
    ncu_trouble: str
    py_spy: py_spy.PySpy = py_spy.PySpy()
    counters: gpu_counters.GpuCounters = gpu_counters.GpuCounters()

    @property
    def has_gpu(self) -> bool:
        return bool(self.devices.gpus)

    @property
    def nsys_doubt(self) -> tuple[str, str] | None:
        """Why the installed nsys may lose what the program does on a GPU, and what to do; None where it should not."""
        if self.nsys is None or not self.has_gpu:
            return None
        if self.nsys.no_report:
            return self.nsys.no_report, "install what it lacks, or the whole of Nsight Systems"
        wanted = nsys.wanted_for(self.nsys, self.program.cuda)
        why = f"{self.nsys.version} is older than CUDA {self.program.cuda} and may lose kernels"
        return (why, f"update it to {wanted} or newer") if wanted else None


class Plan(Struct, frozen=True):
    """`passes` in their order; `left_out`: pass → reason; `warnings`: what will be missed."""

    machine: Machine
    passes: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def lines(self, window: str) -> list[str]:
        """The plan, a line a pass. `window`: which steps are recorded."""
        planned = [f"{name:6}{self._what(name, window)}" for name in self.passes]
        return planned + [f"{name:6}left out: {why}" for name, why in self.left_out.items()] + list(self.warnings)

    def _what(self, name: str, window: str) -> str:
        machine = self.machine
        if name == "torch":
            version = f" (torch {machine.program.torch})" if machine.program.torch else ""
            return f"{window}: {'ops, CUDA calls and kernels' if machine.has_gpu else 'ops of the CPU'}{version}"
        if name == "nsys":
            counters = " the GPU's counters," if machine.counters.option else ""
            what = f"kernels, CUDA calls,{counters} the system's calls" if machine.has_gpu else "the system's calls"
            version = machine.nsys.version if machine.nsys else ""
            return f"{what}, ranges, and ops of the CPU for {window} (Nsight Systems {version})"
        return "the kernels that take most time, a few launches of each, on one rank (Nsight Compute)"


def inspect(command: Sequence[str], environment: Mapping[str, str]) -> Machine:
    tool, devices, permission = nsys.find(), device.find(), gpu_counters.permission_trouble()
    return Machine(
        program.inspect(command, environment), tool, tool_process.find("ncu"), devices, permission, py_spy.find(),
        gpu_counters.find(tool, permission) if devices.gpus else gpu_counters.GpuCounters(),
    )  # fmt: skip


def parse_passes(text: str) -> tuple[str, ...] | None:
    """The names in a text like `nsys,torch`; None for auto. Raises ValueError with the list of valid ones."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in (*PASSES, AUTO)]
    if unknown or not names or (AUTO in names and len(names) > 1):
        wrong = ", ".join(unknown) or text
        raise ValueError(f"{wrong!r} is no pass. Give {AUTO}, or some of {', '.join(PASSES)}, separated by commas.")
    if names == [AUTO]:
        return None
    return tuple(dict.fromkeys(names))


def make(machine: Machine, wanted: tuple[str, ...] | None, folder: Path) -> Plan:
    """The plan for these passes. Raises PerfdoctorError where the command is a profiler itself."""
    if machine.program.profiler:
        raise PerfdoctorError(
            f"the command starts {machine.program.profiler} itself",
            do="Give only the training: perfdoctor run -- python train.py. To read a profile: perfdoctor analyze FILE",
        )
    trouble = {name: _trouble(name, machine, folder) for name in PASSES}
    by_nsys = machine.has_gpu and not trouble["nsys"] and not machine.nsys_doubt
    candidates = wanted or (("nsys",) if by_nsys else ("torch",))
    passes = [name for name in candidates if not trouble[name]]
    if "ncu" in passes and not {"nsys", "torch"} & set(passes):
        passes.remove("ncu")
        trouble["ncu"] = "it needs an earlier pass to find the kernels: --passes nsys,ncu"
    left_out = {name: trouble[name] for name in candidates if trouble[name]}
    if wanted is None:
        left_out |= {name: trouble[name] or _why_not_default(name, machine) for name in PASSES if name not in passes}
    ordered = tuple(name for name in PASSES if name in passes)
    return Plan(machine, ordered, left_out, tuple(_warnings(machine, ordered)))


def _trouble(name: str, machine: Machine, folder: Path) -> str:
    """Why a pass cannot run here; "" if it can."""
    free = shutil.disk_usage(next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())).free
    if free < LEAST_FREE_BYTES:
        wanted = f"a pass may need {LEAST_FREE_BYTES >> 20}"
        return f"{free >> 20} MB are free for {folder}, and {wanted}: choose another folder with -o DIR"
    if name == "torch":
        return _few_descriptors("a recording opens some in it")
    if name == "nsys":
        if machine.nsys is None:
            return "nsys is not installed: put it on PATH, or set PERFDOCTOR_NSYS"
        return machine.nsys.trouble or _few_descriptors("nsys opens ten in it")
    if machine.ncu is None:
        return "ncu is not installed: put it on PATH"
    return (
        machine.ncu_trouble
        if machine.has_gpu
        else f"it measures kernels, and there is no GPU ({machine.devices.trouble})"
    )


def _few_descriptors(why: str) -> str:
    """Why a pass would take the descriptors that the program needs; "" where there are enough."""
    try:
        import resource  # noqa: PLC0415 not on Windows
    except ImportError:
        return ""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= LEAST_DESCRIPTORS:
        return ""
    return f"the program may open {limit} files, and {why}: ulimit -n 256"


def _why_not_default(name: str, machine: Machine) -> str:
    if name == "nsys" and machine.nsys_doubt:
        return "{}: {}, or --passes nsys".format(*machine.nsys_doubt)
    if name == "nsys" and not machine.has_gpu:
        return f"there is no GPU to trace ({machine.devices.trouble}): --passes nsys records the rest"
    if name == "torch":
        return "nsys records the GPU, and CUPTI serves one of the two: --passes nsys,torch runs the program twice"
    return "it runs the program again: --passes nsys,ncu"


def _warnings(machine: Machine, passes: Sequence[str]) -> list[str]:
    target = machine.program
    found = []
    if passes and target.shut_out:
        found.append(
            f"python {target.shut_out} ignores PYTHONPATH or sitecustomize, so perfdoctor's agent is not loaded: no "
            f"steps and no ops will be recorded. Leave out {target.shut_out}."
        )
    elif passes and target.was_inspected and not target.torch:
        found.append(f"{target.interpreter} has no torch: only other Pythons that it starts can be recorded.")
    elif passes and not target.interpreter:
        found.append(f"`{Path(target.command[0]).name}` is no Python: perfdoctor records every Python that it starts.")
    if "nsys" in passes and machine.nsys_doubt:
        found.append("nsys: {}: {}, or --passes torch.".format(*machine.nsys_doubt))
    if "nsys" in passes and machine.counters.trouble:
        found.append(f"nsys without the GPU's counters: {machine.counters.trouble}. {machine.counters.do}")
    if "nsys" in passes and machine.nsys is not None and nsys.keeps_environment(machine.nsys):
        found.append(
            "This nsys writes all environment variables into its report, also secrets: check before you share it."
        )
    return found
