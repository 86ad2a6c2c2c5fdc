"""What can a GPU do at most, by its name or by the user's values?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.errors import UsageError
from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table

#: What a matrix product can read, by the names that reports use. A name of two is the same type in units of its own.
DATA_TYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
_RATES = (*DATA_TYPES, "fp64_matrix", "fp32_matrix")
#: What `--peak` can set: FLOP/s of a type, and bytes/s of the memory and of the link to the host, one way.
SETTABLE = (*DATA_TYPES, "memory", "host_link")
#: A lower one has the wrong unit: every GPU has more FLOP/s and bytes/s.
LEAST_RATE = 1e9

_VENDOR = regex(r"^(?:(?:NVIDIA|AMD|Tesla|GeForce|Instinct)\s+)+", re.IGNORECASE)
#: Slices, laptop and virtual GPUs carry the name of a board that they are not.
_NOT_THE_BOARD = regex(r"\bMIG\b|\bLaptop\b|\bMobile\b|^GRID\b|-\d+[CQAB]$", re.IGNORECASE)
#: An 80 % interval.
_TENTHS = {"low": 0.1, "likely": 0.5, "high": 0.9}
#: In a name that fits several boards: how far its memory may be from the one meant (drivers and ECC keep some).
_LEAST_MEMORY, _MOST_MEMORY = 0.85, 1.05
#: So many are listed where a name fits none, or several.
_MOST_NAMES = 8


class Peaks(Struct, frozen=True):
    """Dense peaks of one GPU in FLOP/s and bytes/s; 0 where not there or unknown. `source`: the vendor's document."""

    name: str
    flop_per_second: Mapping[str, float]
    memory_bytes_per_second: float
    host_link_bytes_per_second: float
    source: str = ""
    sm_count: int = 0

    def matmul_flop_per_second(self, data_type: str) -> float:
        """Peak of the fastest units for products of this type (one of DATA_TYPES)."""
        rates = self.flop_per_second
        return max(rates.get(data_type, 0.0), rates.get(f"{data_type}_matrix", 0.0))

    @property
    def fp32_flop_per_second(self) -> float:
        return self.matmul_flop_per_second("fp32")

    @property
    def tf32_flop_per_second(self) -> float:
        return self.matmul_flop_per_second("tf32")

    @property
    def half_flop_per_second(self) -> float:
        """Peak in fp16 or bfloat16, whichever is faster."""
        return max(self.matmul_flop_per_second("fp16"), self.matmul_flop_per_second("bf16"))

    def ridge_flop_per_byte(self, data_type: str) -> float:
        """Peak over memory bandwidth: with less arithmetic a byte, memory is the limit. 0 where either is not known.

        Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.
        """
        memory = self.memory_bytes_per_second
        return self.matmul_flop_per_second(data_type) / memory if memory else 0.0


class _Board(Struct, frozen=True):
    pattern: re.Pattern[str]
    sm_count: int
    memory_gib: float
    peaks: Peaks


@lru_cache(maxsize=1)
def _boards() -> tuple[_Board, ...]:
    found = []
    for entry in shipped_table(Path(__file__).with_name("gpus.toml"))["gpu"]:
        rates = MappingProxyType({kind: entry[kind] * 1e12 for kind in _RATES if kind in entry})
        memory, link, sms = entry["memory"] * 1e9, entry["pcie"] * 1e9, int(entry["sms"])
        peaks = Peaks(entry["name"], rates, memory, link, entry["source"], sms)
        found.append(_Board(regex(entry["match"], re.IGNORECASE), sms, float(entry["memory_gb"]), peaks))
    return tuple(found)


@lru_cache(maxsize=256)
def peaks_of(gpu_name: str, sm_count: int = 0, memory_bytes: int = 0) -> Peaks | None:
    """Peaks of the GPU with this name, as a driver writes it. `sm_count` and `memory_bytes` are 0 where not recorded.

    None for a GPU that is not in the table, for a recording that names none, and where several boards fit.
    """
    if _NOT_THE_BOARD.search(gpu_name):
        return None
    plain, gib = _VENDOR.sub("", gpu_name.strip()), memory_bytes / 2**30
    fitting = [
        board
        for board in _boards()
        if board.pattern.fullmatch(plain) and not (sm_count and board.sm_count and sm_count != board.sm_count)
    ]
    if len(fitting) > 1:
        fitting = [
            board for board in fitting if _LEAST_MEMORY * board.memory_gib <= gib <= _MOST_MEMORY * board.memory_gib
        ]
    return fitting[0].peaks if len(fitting) == 1 else None


@lru_cache(maxsize=16)
def half_speedups(data_type: str) -> Mapping[str, float]:
    """Speedup of 16-bit products over those of this type, by the data sheets of all GPUs that have both.

    `low` is exceeded by nine of ten GPUs, `likely` is the median, `high` is exceeded by one of ten; 1 without any GPU.
    """
    both = ((board.peaks.half_flop_per_second, board.peaks.matmul_flop_per_second(data_type)) for board in _boards())
    ratios = sorted(half / wide for half, wide in both if half and wide) or [1.0]
    at = {case: ratios[min(int(share * len(ratios)), len(ratios) - 1)] for case, share in _TENTHS.items()}
    return MappingProxyType(at)


def short_names() -> dict[str, str]:
    """Every name of the table by its short one, which needs no quotes: `H100-SXM` for `NVIDIA H100 SXM`."""
    names = [board.peaks.name for board in _boards()]
    return {re.sub(r"[^0-9A-Za-z]+", "-", _VENDOR.sub("", name)).strip("-"): name for name in names}


def named(text: str) -> tuple[Peaks | None, Sequence[str]]:
    """The GPU with this name, as drivers or as the table write it; else None and the nearest names."""
    known = [board.peaks for board in _boards()]
    text = {short.casefold(): name for short, name in short_names().items()}.get(text.strip().casefold(), text)
    plain = _VENDOR.sub("", text.strip()).casefold()
    found = peaks_of(text) or next((each for each in known if _VENDOR.sub("", each.name).casefold() == plain), None)
    if found:
        return found, ()
    words = plain.split()
    near = [each.name for each in known if words and all(word in each.name.casefold() for word in words)]
    return None, near or [each.name for each in known]


def the_one_named(text: str) -> Peaks:
    """The GPU with this name. Raises UsageError, with the nearest names, where that is none or several."""
    found, near = named(text)
    if found is None:
        more = f", and {len(near) - _MOST_NAMES} more" if len(near) > _MOST_NAMES else ""
        raise UsageError(
            f"--gpu {text!r} names no single GPU that is known here",
            do=f"Name one: {', '.join(near[:_MOST_NAMES])}{more}; or give its peaks: --peak bf16=989T.",
        )
    return found


def with_rates(peaks: Peaks | None, values: Mapping[str, float]) -> Peaks | None:
    """The peaks with these values (keys of SETTABLE, in FLOP/s and bytes/s) in place of the table's."""
    if not values:
        return peaks
    known = peaks or Peaks("", MappingProxyType({}), 0.0, 0.0)
    rates = {kind: rate for kind, rate in known.flop_per_second.items() if kind.partition("_")[0] not in values}
    rates.update({kind: values[kind] for kind in DATA_TYPES if kind in values})
    return replace(
        known,
        flop_per_second=MappingProxyType(rates),
        memory_bytes_per_second=values.get("memory", known.memory_bytes_per_second),
        host_link_bytes_per_second=values.get("host_link", known.host_link_bytes_per_second),
    )
