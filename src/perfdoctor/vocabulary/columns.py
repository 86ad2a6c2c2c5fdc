"""What is a column of a signal, or of an exported table: its type, its unit, and its words?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

_TYPES: Mapping[str, type] = {"int": int, "float": float, "bool": bool, "str": str}
#: The end of a column's name says its unit.
_UNITS: Mapping[str, str] = {
    "_bytes_per_second": "bytes/s", "_ns_per_step": "ns per step", "_ns": "ns", "_bytes": "bytes", "_share": "0 to 1",
    "_mhz": "MHz", "_hz": "Hz", "_w": "W", "_c": "°C", "_cores": "cores",
}  # fmt: skip


class DeclaredColumn(Struct, frozen=True):
    """A column as signals.toml or tables.toml declares it: what each field means stands there.

    `kind`: int, float, bool or str. `unit`: "" for numbers without one, and for text. `label` is always given.
    """

    kind: type
    unit: str
    meaning: str
    label: str
    shown: str = ""
    refers: str = ""
    is_signed: bool = False


def declared(names: list[str], known: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, DeclaredColumn]:
    """The columns with these names. `known`: each as the file declares it; `own`: what one table says differently."""
    found = {}
    for name in names:
        other = own.get(name, {})
        other = {"meaning": other} if isinstance(other, str) else other
        said = {"label": name.replace("_", " "), **known[name], **other}
        kind = _TYPES[said.pop("type")]
        found[name] = DeclaredColumn(kind, _unit(name, kind), **said)
    return found


def _unit(name: str, kind: type) -> str:
    if kind is bool:
        return "0 or 1"
    if name in ("bytes", "cores"):
        return name
    return next((unit for ending, unit in _UNITS.items() if kind is not str and name.endswith(ending)), "")
