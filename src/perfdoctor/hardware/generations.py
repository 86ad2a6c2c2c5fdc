"""The generation of a GPU says whether it has tensor cores, which number formats it takes, and what compiles for it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table

#: The first generations with tensor cores, and with TF32 and bfloat16 on them.
VOLTA, AMPERE = (7, 0), (8, 0)
NVIDIA = "NVIDIA"
_UNKNOWN = (0, 0)
#: Abilities of tensor cores, of whatever generation.
_OF_TENSOR_CORES = ("tensor-cores", "half")


class Generation(Struct, frozen=True):
    """`capability`: NVIDIA's compute capability, (0, 0) of others' GPUs; `tensor_cores`: it has some.

    `takes`: abilities (`abilities()`) that it has besides those of its capability.
    """

    capability: tuple[int, int]
    tensor_cores: bool
    vendor: str = NVIDIA
    takes: frozenset[str] = frozenset()

    @property
    def is_before_ampere(self) -> bool:
        """Do its tensor cores, if it has any, take neither TF32 nor bfloat16?"""
        return self.vendor == NVIDIA and self.capability < AMPERE

    def has(self, ability: str) -> bool:
        """Has it one of `abilities()`?"""
        least = _table()["abilities"].get(ability)
        if least is None:
            return self.tensor_cores or ability in self.takes
        return (self.vendor == NVIDIA and self.capability >= tuple(least)) or ability in self.takes


@cache
def _table() -> dict[str, Any]:
    return shipped_table(Path(__file__).with_suffix(".toml"))


def abilities() -> frozenset[str]:
    """What may be asked of a generation: 16-bit types, TF32, fp8, tensor cores, kernels by Triton, graphs."""
    return frozenset({*_table()["abilities"], *_OF_TENSOR_CORES})


@cache
def _rows() -> tuple[tuple[re.Pattern[str], Generation], ...]:
    return tuple(
        (
            regex(row["name"], re.IGNORECASE),
            Generation(
                tuple(row.get("capability", _UNKNOWN)),
                row.get("tensor_cores", True),
                row.get("vendor", NVIDIA),
                frozenset(row.get("takes", ())),
            ),
        )
        for row in _table()["generation"]
    )


@cache
def vendor(name: str) -> str:
    """Whose GPU has this name, as a driver writes it; "" where the name does not say."""
    named = next((each for pattern, each in _rows() if pattern.search(name)), None)
    if named is not None:
        return named.vendor
    by_vendor = _table()["vendors"]
    return next((each for each in by_vendor if regex(by_vendor[each], re.IGNORECASE).search(name)), "")


def generation(name: str, capability: tuple[int, int] = _UNKNOWN) -> Generation | None:
    """Return the generation of a GPU; None where neither its name nor its compute capability is known.

    Args:
        name: Its name, as a driver writes it.
        capability: Its compute capability as recorded, (0, 0) where it was not. That of another vendor says nothing.
    """
    named = next((each for pattern, each in _rows() if pattern.search(name)), None)
    if capability == _UNKNOWN or vendor(name) not in ("", NVIDIA):
        return named
    if named is not None and named.capability == capability:
        return named
    return Generation(capability, capability >= VOLTA)
