"""Which categories of rules are there, and which pages of numbers has a report?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Category(NamedTuple):
    """A category of rules: its heading, and examples of what is in it, both for the documentation."""

    title: str
    about: str


#: By the name that a rule's document and its folder have, in the order of a batch's way through a step.
CATEGORIES: Mapping[str, Category] = {
    "input": Category("Input", "waiting for data, DataLoader workers"),
    "host": Category("Host", "launch-bound, host syncs, checkpoints, garbage collection, recompilation"),
    "kernels": Category(
        "Kernels", "fp32 matmuls, unfused attention and optimizer, tiny kernels, occupancy, memory access"
    ),
    "copies": Category("Copies", "pageable memory, copies not overlapped, slow PCIe"),
    "communication": Category(
        "Communication", "collectives not overlapped, stragglers, NCCL on slow paths, pipeline bubbles"
    ),
    "memory": Category("Memory", "out of memory, leaks, fragmentation, recomputation"),
    "device": Category("Device", "throttled clocks, slow or shared GPUs, irregular steps"),
}


#: The title of each page by its name, which is its address in a report; `views/pages/` has a module of that name.
PAGES: Mapping[str, str] = {
    "timeline": "Timeline",
    "kernels": "Kernels",
    "ops": "Ops and code",
    "communication": "Communication",
    "copies": "Copies",
    "roofline": "Roofline",
    "memory": "Memory",
    "steps": "Steps",
    "ranks": "Ranks",
    "device": "Device",
}
