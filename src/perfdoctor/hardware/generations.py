"""The generation of a GPU says whether it has tensor cores, and which number formats these take."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table

#: The first generations with tensor cores, and with TF32 and bfloat16 on them.
VOLTA, AMPERE = (7, 0), (8, 0)
_UNKNOWN = (0, 0)


class Generation(Struct, frozen=True):
    """`capability`: NVIDIA's compute capability; `tensor_cores`: it has some."""

    capability: tuple[int, int]
    tensor_cores: bool

    @property
    def is_before_ampere(self) -> bool:
        """Do its tensor cores, if it has any, take neither TF32 nor bfloat16?"""
        return self.capability < AMPERE


@cache
def _rows() -> tuple[tuple[re.Pattern[str], Generation], ...]:
    rows = shipped_table(Path(__file__).with_suffix(".toml"))["generation"]
    return tuple(
        (regex(row["name"], re.IGNORECASE), Generation(tuple(row["capability"]), row.get("tensor_cores", True)))
        for row in rows
    )


def generation(name: str, capability: tuple[int, int] = _UNKNOWN) -> Generation | None:
    """Return the generation of a GPU; None where neither its name nor its compute capability is known.

    Args:
        name: Its name, as a driver writes it.
        capability: Its compute capability as recorded, (0, 0) where it was not.
    """
    named = next((each for pattern, each in _rows() if pattern.search(name)), None)
    if capability == _UNKNOWN:
        return named
    has_cores = named.tensor_cores if named is not None and named.capability == capability else capability >= VOLTA
    return Generation(capability, has_cores)
