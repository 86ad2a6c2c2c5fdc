"""What do the columns of nvidia-smi, dmon, dcgmi and our own samples mean, and in which units?

Names: `nvidia-smi --help-query-gpu`, the manual's section on dmon, dcgm_fields.cpp (short names), and
`recording/tools/nvml.py`. A value's own unit (`387.26 W`) overrides its column's (`[W]`, `_mw`), which overrides
the tool's usual one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from msgspec import Struct

from perfdoctor.patterns import regex

TIME, DEVICE, GPU, REASONS = "time", "device", "gpu", "reasons"

_MIB, _KB, _MB = float(1 << 20), 1e3, 1e6
_PER_SECOND = "_bytes_per_second"
#: Ending of our column's name → the factors of the units that tools use for it.
_UNITS: Mapping[str, Mapping[str, float]] = {
    "_w": {"w": 1, "mw": 1e-3, "kw": 1e3},
    "_mhz": {"mhz": 1, "hz": 1e-6, "ghz": 1e3},
    "_c": {"c": 1},
    "_share": {"%": 0.01, "percent": 0.01, "pct": 0.01, "share": 1, "ratio": 1},
    _PER_SECOND: {
        "b/s": 1, "bytes.per.second": 1, "kb/s": _KB, "kb.per.s": _KB, "kib/s": 1024, "mb/s": _MB, "mb.per.s": _MB,
        "mib/s": _MIB, "gb/s": 1e9, "gib/s": 1024.0**3,
    },
    # The driver's tools write MB and mean MiB: dmon's 90538 MB is the query's 90538 MiB.
    "_bytes": {"bytes": 1, "b": 1, "kib": 1024, "mib": _MIB, "mb": _MIB, "gib": 1024.0**3, "gb": 1024.0**3},
}  # fmt: skip


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

#: A column's name without its unit → our column, and the unit where none is written.
_NAMES: tuple[tuple[str, str, str], ...] = (
    (r"timestamp|time|date\.?time|unix(\.ns)?", TIME, ""),
    (r"gpu|index|idx|(gpu|device)\.(index|id)|device|minor\.number", DEVICE, ""),
    (r"(gpu\.|product\.)?name|gpu\.type", GPU, ""),
    (r"(clocks\.(throttle|event)\.reasons\.active|throttle\.reasons|clocks\.event\.reasons)", REASONS, ""),
    (r"(gpu\.)?power(\.draw(\.average|\.instant)?|\.usage)?|pwr", "power_w", "w"),
    (r"(enforced\.)?power\.limit", "power_limit_w", "w"),
    (r"(default\.)power\.limit|power\.default\.limit", "default_power_limit_w", "w"),
    (r"clocks\.(current\.)?sm|sm\.clock|clock\.sm", "sm_clock_mhz", "mhz"),
    (r"clocks\.max\.sm|max\.sm\.clock|clock\.sm\.max", "max_sm_clock_mhz", "mhz"),
    (r"clocks\.applications\.gr(aphics)?", "application_clock_mhz", "mhz"),
    (r"clocks\.(current\.)?mem(ory)?|mem(ory)?\.clock", "memory_clock_mhz", "mhz"),
    (r"temperature(\.gpu)?|temp|gpu\.temp(erature)?", "temperature_c", "c"),
    (r"utili[sz]ation(\.gpu)?|(gpu\.)?util|gpu\.utili[sz]ation", "utilization_share", "%"),
    (r"utili[sz]ation\.mem(ory)?", "memory_utilization_share", "%"),
    (r"(gpu\.)?mem(ory)?\.used", "memory_used_bytes", "mib"),
    (r"(gpu\.)?mem(ory)?\.total", "memory_total_bytes", "mib"),
    (r"pcie\.link\.gen\.(gpu)?current|pcie\.generation", "pcie_generation", ""),
    (r"pcie\.link\.gen\.max|max\.pcie\.generation", "max_pcie_generation", ""),
    (r"pcie\.link\.width\.current|pcie\.width", "pcie_width", ""),
    (r"pcie\.link\.width\.max|max\.pcie\.width", "max_pcie_width", ""),
    (r"pcie\.rx", "pcie_rx_bytes_per_second", "kb/s"),
    (r"pcie\.tx", "pcie_tx_bytes_per_second", "kb/s"),
    (r"processes", "processes", ""),
)  # fmt: skip
#: dmon's columns whose names differ from the query's.
_DMON = {
    "sm": ("utilization_share", "%"), "mem": ("memory_utilization_share", "%"), "gtemp": ("temperature_c", "c"),
    "mclk": ("memory_clock_mhz", "mhz"), "pclk": ("sm_clock_mhz", "mhz"), "fb": ("memory_used_bytes", "mib"),
    "rxpci": ("pcie_rx_bytes_per_second", "mb/s"), "txpci": ("pcie_tx_bytes_per_second", "mb/s"),
    "pviol": ("power_violation_share", "%"), "pwr": ("power_w", "w"), "gpu": (DEVICE, ""),
}  # fmt: skip
#: dcgmi's short names; its profiling counters are shares of 1 and bytes per second.
_DCGM = {
    "POWER": ("power_w", "w"), "PMLMT": ("power_limit_w", "w"), "EPLMT": ("power_limit_w", "w"),
    "PMDEF": ("default_power_limit_w", "w"), "SMCLK": ("sm_clock_mhz", "mhz"), "SMMAX": ("max_sm_clock_mhz", "mhz"),
    "SACLK": ("application_clock_mhz", "mhz"), "MMCLK": ("memory_clock_mhz", "mhz"), "TMPTR": ("temperature_c", "c"),
    "GPUTL": ("utilization_share", "%"), "MCUTL": ("memory_utilization_share", "%"),
    "FBUSD": ("memory_used_bytes", "mib"), "FBTTL": ("memory_total_bytes", "mib"), "DVCCTR": (REASONS, ""),
    "TXTPT": ("pcie_tx_bytes_per_second", "kb/s"), "RXTPT": ("pcie_rx_bytes_per_second", "kb/s"),
    "PCITX": ("pcie_tx_bytes_per_second", "b/s"), "PCIRX": ("pcie_rx_bytes_per_second", "b/s"),
    "NVLTX": ("nvlink_tx_bytes_per_second", "b/s"), "NVLRX": ("nvlink_rx_bytes_per_second", "b/s"),
    "SMACT": ("sm_active_share", "share"), "TENSO": ("tensor_active_share", "share"),
    "DRAMA": ("dram_active_share", "share"),
}  # fmt: skip
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
    for pattern, column, usual in _NAMES:
        if re.fullmatch(pattern, words) or re.fullmatch(pattern, cut):
            return _meaning(column, unit or (tail.group(1) if tail else ""), usual)
    return None


def of_dmon(name: str, unit: str) -> Meaning | None:
    """The meaning of a column of `nvidia-smi dmon`; None if it is not kept."""
    if name.lower() in ("date", "time"):
        return Meaning(TIME)
    if name.lower() == "tviol":  # a flag: clocks are reduced because of temperature
        return Meaning(REASONS, bit=BITS["sw.thermal.slowdown"])
    column, usual = _DMON.get(name.lower(), ("", ""))
    return _meaning(column, unit.lower(), usual) if column else None


def of_dcgm(name: str, unit: str) -> Meaning | None:
    """The meaning of a column of `dcgmi dmon`, by DCGM's short name; None if it is not kept."""
    if name.lower() == "entity":
        return Meaning(DEVICE)
    column, usual = _DCGM.get(name.upper(), ("", ""))
    return _meaning(column, unit.lower(), usual) if column else None


def _meaning(column: str, unit: str, usual: str) -> Meaning:
    return Meaning(column, _factor(column, unit) or _factor(column, usual) or 1.0)


def _factor(column: str, unit: str) -> float | None:
    """The factor of a unit to that of the column, which its name ends with; None if the tools have no such unit."""
    return next((scales.get(unit) for end, scales in _UNITS.items() if column.endswith(end)), None)


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
