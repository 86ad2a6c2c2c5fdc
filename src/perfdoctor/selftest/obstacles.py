"""What on this machine stands in a tool's way, by its messages and by what the system shows?

Messages are tried in their order: the first that occurs is the cause of the others. Sources: CUPTI's, Nsight Systems'
and Nsight Compute's user guides; NVIDIA's "Permission issue with performance counters" (ERR_NVGPUCTRPERM); Kineto's log
messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct


class Obstacle(Struct, frozen=True):
    """`what` stands in the way, and what to `do` about it."""

    what: str
    do: str


#: (messages, what they mean, what to do)
_KNOWN = (
    (
        r"driver on your system is too old|driver version is insufficient|CUDA_ERROR_INVALID_PTX|forward compatibility",
        "the NVIDIA driver is older than what this torch or tool was built for",
        "Update the driver, or install a torch for the CUDA version that nvidia-smi shows.",
    ),
    (
        r"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED|MULTIPLE_SUBSCRIBERS|already subscribed",
        "another tool holds CUPTI, which serves one at a time",
        "End the other profiler (nsys, ncu, DCGM, a CUDA_INJECTION64_PATH in the environment) and try again.",
    ),
    (
        r"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES|ERR_NVGPUCTRPERM",
        "only an administrator may read the GPU's performance counters (ERR_NVGPUCTRPERM)",
        (
            "Load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0, or run as root "
            "(in a container: with --cap-add=SYS_ADMIN)."
        ),
    ),
    (
        r"CUPTI_ERROR_|CUPTI initialization failed|cupti.*not (?:found|loaded)",
        "CUPTI, which records kernels, could not be started",
        "Check that the driver fits torch (nvidia-smi, torch.version.cuda), and that no other profiler runs.",
    ),
    (
        r"CLI executable is in the 'target-linux|error while loading shared libraries: libToolsInjection",
        "the Nsight Systems here is incomplete: its target folder, or a library in it, is missing",
        (
            "Install Nsight Systems again, and put its bin/nsys on PATH or into PERFDOCTOR_NSYS: a copied nsys alone "
            "does not work."
        ),
    ),
    (
        r"importer binary and its dependencies were not found|QdstrmImporter|its importer failed",
        "Nsight Systems recorded, but its importer is missing or incomplete",
        "Install its host part and libssh (Debian: libssh-4), or analyse the .qdstrm where nsys is complete.",
    ),
    (
        r"perf_event_paranoid|Paranoid Level|perf_event_open",
        "the kernel lets only an administrator sample processes (perf_event_paranoid)",
        "sudo sysctl kernel.perf_event_paranoid=1, or in a container --cap-add=PERFMON.",
    ),
    (
        r"ptrace",
        "the system forbids one process to attach to another (ptrace)",
        "sudo sysctl kernel.yama.ptrace_scope=0, or in a container --cap-add=SYS_PTRACE.",
    ),
    (
        r"\bMIG\b|Multi-Instance",
        "the GPU is divided (MIG), and its counters are not available to a slice",
        "Record on an undivided GPU, or leave this tool out: times of kernels are recorded all the same.",
    ),
    (
        r"RendezvousConnectionError|connection to the C10d store has failed|connectFullMesh|Network is unreachable",
        "two processes of this machine could not connect to each other",
        "Bring up loopback (ip link set lo up), or name a network with GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME.",
    ),
    (
        r"out of memory|OutOfMemoryError",
        "the GPU had not enough free memory",
        "Free the GPU (nvidia-smi lists who uses it), or choose another one with CUDA_VISIBLE_DEVICES.",
    ),
    (
        r"No space left on device|Errno 28",
        "the disk is full",
        "Free some space, or record elsewhere with --output DIR.",
    ),
    (
        r"No module named 'torch'|No module named torch",
        "this Python has no torch",
        "Give the Python that trains: perfdoctor selftest --python PROGRAM.",
    ),
)


def by_messages(text: str) -> Obstacle | None:
    """The obstacle that the messages of a tool or program name; None where none is known."""
    return next((Obstacle(what, do) for pattern, what, do in _KNOWN if re.search(pattern, text, re.IGNORECASE)), None)


#: Variables by which another tool enters each CUDA program: it then holds CUPTI.
_INJECTED = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "CUDA_INJECTION32_PATH")


def another_tool(environment: Mapping[str, str]) -> Obstacle | None:
    """The obstacle of a profiler that the environment loads into every CUDA program; else None."""
    found = next((name for name in _INJECTED if environment.get(name)), "")
    if not found:
        return None
    return Obstacle(f"{found} loads another tool into every program, and it holds CUPTI", f"unset {found}")


def divided_gpu(names: list[str]) -> Obstacle | None:
    """The obstacle of a GPU that is divided (MIG), by the names that the driver gives; else None."""
    return by_messages("MIG") if any("MIG" in name.split() for name in names) else None
