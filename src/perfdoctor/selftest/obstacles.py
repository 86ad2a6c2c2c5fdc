"""What on this machine stands in a tool's way, by its messages and by what the system shows?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from perfdoctor.system.toml_tables import shipped_table


class Obstacle(Struct, frozen=True):
    """`what` stands in the way, and what to `do` about it."""

    what: str
    do: str


@cache
def known() -> tuple[tuple[str, Obstacle], ...]:
    """Each obstacle of obstacles.toml behind the pattern of its messages."""
    rows = shipped_table(Path(__file__).with_suffix(".toml"))["obstacle"]
    return tuple((row["messages"], Obstacle(row["what"], row["do"])) for row in rows)


def by_messages(text: str) -> Obstacle | None:
    """The obstacle that the messages of a tool or program name; None where none is known."""
    return next((obstacle for pattern, obstacle in known() if re.search(pattern, text, re.IGNORECASE)), None)


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
