"""What do the columns of nvidia-smi, dmon, dcgmi and our own samples mean, and in which units?

`sample_columns.toml` has their names. A value's own unit (`387.26 W`) overrides its column's (`[W]`, `_mw`), which
overrides the tool's usual one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import Table, shipped_table

TIME, DEVICE, GPU, REASONS = "time", "device", "gpu", "reasons"
_PER_SECOND = "_bytes_per_second"


@cache
def names() -> Table:
    """The names of the columns and units, by tool."""
    return shipped_table(Path(__file__).with_suffix(".toml"))


class Meaning(Struct, frozen=True):
    """What a tool's column is: a column of `device_samples`, and the factor to its unit.

    `bit`: of a reason that has a column of its own. `is_counter`: a running total, of which the rate is kept.
    """

    column: str
    factor: float = 1.0
    bit: int = 0
    is_counter: bool = False


#: NVML's reasons (nvml.h, nvmlClocksEventReason…), by the names of `--query-gpu=clocks_event_reasons.…`.
BITS = {
    "gpu.idle": 0x1, "applications.clocks.setting": 0x2, "sw.power.cap": 0x4, "hw.slowdown": 0x8, "sync.boost": 0x10,
    "sw.thermal.slowdown": 0x20, "hw.thermal.slowdown": 0x40, "hw.power.brake.slowdown": 0x80,
    "display.clock.setting": 0x100,
}  # fmt: skip

#: Larger numbers are damage: no clock, power, memory or rate is as large.
_ABSURD = 1e18
#: Bits above these have no meaning yet.
_KNOWN_BITS = 0xFFFF

#: A unit at the end of a name, as scripts write it: power_W, temperature_C, utilization_gpu_percent.
_UNIT_TAIL = regex(r"\.(mw|w|mhz|c|percent|pct|mib|mb|gib|gb|kb\.per\.s|mb\.per\.s|bytes|ns)$")
_BRACKET = regex(r"\s*[\[(]\s*([^\])]*?)\s*[\])]\s*$")
_NUMBER = regex(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z%/]*)\s*$")


@lru_cache(maxsize=10_000)
def of_query(name: str) -> Meaning | None:
    """The meaning of a CSV's column: nvidia-smi's, ours, or a script's; None if it is not kept."""
    bracket = _BRACKET.search(name)
    unit = bracket.group(1).lower() if bracket else ""
    words = re.sub(r"[^a-z0-9]+", ".", _BRACKET.sub("", name).strip().lower()).strip(".")
    if words in ("nvlink.rx.kib", "nvlink.tx.kib"):
        return Meaning(words.replace(".", "_").removesuffix("_kib") + _PER_SECOND, 1024, is_counter=True)
    reason = re.fullmatch(r"clocks\.(?:throttle|event)\.reasons\.(.+)", words)
    if reason and reason.group(1) in BITS:
        return Meaning(REASONS, bit=BITS[reason.group(1)])
    tail = _UNIT_TAIL.search(words)
    cut = words[: tail.start()] if tail else words
    for pattern, column, usual in names()["query"]:
        if re.fullmatch(pattern, words) or re.fullmatch(pattern, cut):
            return _meaning(column, unit or (tail.group(1) if tail else ""), usual)
    return None


def of_dmon(name: str, unit: str) -> Meaning | None:
    """The meaning of a column of `nvidia-smi dmon`; None if it is not kept."""
    if name.lower() in ("date", "time"):
        return Meaning(TIME)
    if name.lower() == "tviol":  # a flag: clocks are reduced because of temperature
        return Meaning(REASONS, bit=BITS["sw.thermal.slowdown"])
    column, usual = names()["dmon"].get(name.lower(), ("", ""))
    return _meaning(column, unit.lower(), usual) if column else None


def of_dcgm(name: str, unit: str) -> Meaning | None:
    """The meaning of a column of `dcgmi dmon`, by DCGM's short name; None if it is not kept."""
    if name.lower() == "entity":
        return Meaning(DEVICE)
    column, usual = names()["dcgm"].get(name.upper(), ("", ""))
    return _meaning(column, unit.lower(), usual) if column else None


def _meaning(column: str, unit: str, usual: str) -> Meaning:
    return Meaning(column, _factor(column, unit) or _factor(column, usual) or 1.0)


def _factor(column: str, unit: str) -> float | None:
    """The factor of a unit to that of the column, which its name ends with; None if the tools have no such unit."""
    return next((scales.get(unit) for end, scales in names()["unit"].items() if column.endswith(end)), None)


def number_of(meaning: Meaning) -> Callable[[str], float]:
    """A function from a cell's text to its number in our unit; NaN for `N/A`, `[Not Supported]`, `-`, `ERR!` …"""

    @lru_cache(maxsize=100_000)
    def number(text: str) -> float:
        found = _NUMBER.match(text)
        if not found:
            return float("nan")
        own = _factor(meaning.column, found.group(2).lower()) if found.group(2) else None
        value = float(found.group(1)) * (meaning.factor if own is None else own)
        return value if abs(value) < _ABSURD else float("nan")

    return number


def reasons_of(meaning: Meaning, text: str) -> int | None:
    """NVML's bits in the `text` of a cell: a mask, or one reason that is `Active` or not; None if unknown."""
    text = text.strip()
    if meaning.bit:
        return {"active": meaning.bit, "not active": 0, "1": meaning.bit, "0": 0}.get(text.lower())
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text):
        return int(text, 16) & _KNOWN_BITS
    return int(text) & _KNOWN_BITS if re.fullmatch(r"\d{1,19}", text, re.ASCII) else None  # as DCGM prints it
