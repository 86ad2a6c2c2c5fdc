"""Which counters of the GPU are known, and how do tools spell them? Each is a row of gpu_counters.toml.

The columns with these names, their units and meanings are in signals.toml, as those of every signal.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table

#: What may stand behind a name and leave its number what it is.
_UNIT = regex(r"\s*\[(throughput %|mhz)\]$")


class Counter(Struct, frozen=True):
    """One counter: its column in `gpu_counters`, and what reports call it."""

    column: str
    label: str

    @property
    def metric(self) -> str:
        """Its word in diagnosis.json: the column without the unit."""
        return self.column.removesuffix("_share").removesuffix("_hz")

    @property
    def is_share(self) -> bool:
        """Is it a share of a peak? Else it is a clock in Hz."""
        return self.column.endswith("_share")


_DECLARED = shipped_table(Path(__file__).with_suffix(".toml"))
#: Every known counter by its column.
COUNTERS: Mapping[str, Counter] = {column: Counter(column, row["label"]) for column, row in _DECLARED.items()}
_SPELLED = {name.lower(): COUNTERS[column] for column, row in _DECLARED.items() for name in row["names"]}


def counter(name: str) -> Counter | None:
    """The counter that a tool calls so, with or without its row's name in front; None for one that is not known."""
    plain = _UNIT.sub("", name.strip().lower())
    return _SPELLED.get(plain) or _SPELLED.get(plain.partition("/")[2].strip())
