"""What are the published peaks of a GPU, going by its name?"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Peaks:
    """Dense peaks of one GPU; 0 where the device has no such units. FLOP/s and bytes/s."""

    name: str
    fp32_flop_per_second: float
    tf32_flop_per_second: float
    half_flop_per_second: float
    memory_bytes_per_second: float
    host_link_bytes_per_second: float


@lru_cache(maxsize=1)
def _table() -> list[tuple[re.Pattern[str], Peaks]]:
    text = (files("perfdoctor.hardware") / "gpus.toml").read_text("utf-8")
    return [(re.compile(entry["match"], re.IGNORECASE), _peaks(entry)) for entry in tomllib.loads(text)["gpu"]]


def _peaks(entry: dict[str, float | str]) -> Peaks:
    fp32, tf32, half = (float(entry[kind]) * 1e12 for kind in ("fp32", "tf32", "half"))
    return Peaks(str(entry["name"]), fp32, tf32, half, float(entry["memory"]) * 1e9, float(entry["pcie"]) * 1e9)


@lru_cache(maxsize=256)
def peaks_of(gpu_name: str) -> Peaks | None:
    """None for a GPU that is not in the table, and for a recording that names none."""
    return next((peaks for pattern, peaks in _table() if pattern.search(gpu_name)), None)
