"""Which kinds are there of kernels, copies, collectives and memory, and what are they called?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from perfdoctor.system.toml_tables import shipped_table

#: What kernels do: `names/kernels.py` derives it from their names.
KERNEL_FAMILIES = (
    "gemm", "attention", "convolution", "elementwise", "reduction", "normalization", "optimizer", "embedding", "other",
)  # fmt: skip
#: On a run without a GPU: the phases of a step that the training thread's ops belong to.
OP_PHASES: Mapping[str, str] = {
    "other": "forward pass and others", "backward": "backward pass", "optimizer": "optimizer",
}  # fmt: skip
#: Families whose work is matrix products: those that tensor cores are for.
MATMUL_FAMILIES = ("gemm", "convolution", "attention")
#: On which units such a kernel multiplies.
MATH_PATHS: Mapping[str, str] = {"tensor_core": "tensor cores", "no_tensor_core": "no tensor cores", "unknown": ""}

#: The direction of a copy; a memset only writes.
COPY_DIRECTIONS: Mapping[str, str] = {
    "h2d": "host to GPU", "d2h": "GPU to host", "d2d": "within the GPU", "p2p": "GPU to GPU", "h2h": "host to host",
    "memset": "memset", "unknown": "unknown",
}  # fmt: skip
#: The host's side of a copy; none where the host has no part.
HOST_MEMORY = ("pageable", "pinned", "managed", "unknown", "none")

COLLECTIVE_KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast", "reduce", "barrier", "other",
)  # fmt: skip
#: Their plural in sentences.
COLLECTIVE_LABELS: Mapping[str, str] = {
    "all_reduce": "all-reduces", "all_gather": "all-gathers", "reduce_scatter": "reduce-scatters",
    "all_to_all": "all-to-alls", "send_recv": "sends and receives", "broadcast": "broadcasts", "reduce": "reduces",
    "barrier": "barriers", "other": "other collectives",
}  # fmt: skip
#: What a group of ranks is for, as the end of a sentence about its collectives: `all-gathers of sharded parameters`.
PARALLELISM: Mapping[str, str] = {
    "data": "data parallelism", "sharded": "sharded parameters", "hybrid": "replicas of sharded parameters",
    "tensor": "tensor parallelism", "sequence": "sequence parallelism", "pipeline": "a pipeline", "expert": "experts",
    "embeddings": "embeddings", "exchange": "an exchange between ranks",
}  # fmt: skip
#: Rings of these reach every link's rate; an all-to-all also crosses pairs that have no link.
ON_RINGS = ("all_reduce", "all_gather", "reduce_scatter")


class MemoryKind(NamedTuple):
    """`colour`: the part of a step (see `parts.PARTS`) whose colour it has in charts."""

    label: str
    colour: str


#: What memory is for, as stacks of allocations and torch.profiler show it.
MEMORY_KINDS: Mapping[str, MemoryKind] = {
    name: MemoryKind(**each) for name, each in shipped_table(Path(__file__).with_name("memory_kinds.toml")).items()
}


def memory_label(kind: str) -> str:
    """Return the words for a kind of memory; an unknown kind stays as it is."""
    return MEMORY_KINDS[kind].label if kind in MEMORY_KINDS else kind


class KernelLimit(NamedTuple):
    """`label`: what limits such a kernel. `moved`: with what it gets shorter, "" where that is unknown.

    `unit`: the unit that is the limit, `column` of `kernel_profiles` how near to its peak it is; "" where it is none.
    """

    label: str
    moved: str
    unit: str = ""
    column: str = ""


class ProfileSection(NamedTuple):
    """`column`: a number of `kernel_profiles` that this section of a report has. `shows`: in words."""

    column: str
    shows: str


_OF_PROFILES = shipped_table(Path(__file__).with_name("kernel_limits.toml"))
#: What limits a measured kernel: `metrics/kernels/kernel_limits.py` finds it.
KERNEL_LIMITS: Mapping[str, KernelLimit] = {name: KernelLimit(**each) for name, each in _OF_PROFILES["limit"].items()}
#: The sections of a report of Nsight Compute, by the name that `--section` takes.
PROFILE_SECTIONS: Mapping[str, ProfileSection] = {
    name: ProfileSection(**each) for name, each in _OF_PROFILES["section"].items()
}


def stall_label(stall: str) -> str:
    """What warps wait for, with Nsight Compute's name: `loads from global or local memory (long scoreboard)`."""
    words = _OF_PROFILES["stall"].get(stall)
    return f"{words} ({stall})" if words else stall
