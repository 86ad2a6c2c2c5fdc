"""Which bandwidth have the links between the GPUs of one machine, by the GPU's name, and PCIe?"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table

#: Per lane and direction, in bytes/s: transfers/s × the share of the line code that is data ÷ 8 (PCI-SIG, PCI Express
#: Base Specification: 2.5 and 5 GT/s with 8b/10b, 8 to 32 GT/s with 128b/130b, 64 GT/s with FLITs of 236/256).
_PCIE_PER_LANE = {
    1: 2.5e9 * 8 / 10 / 8,
    2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8,
    5: 32e9 * 128 / 130 / 8,
    6: 64e9 * 236 / 256 / 8,
}

#: Of these bytes the share that is data: packets of acknowledgement and flow control take 8 % (62.96 → 57.88 Gbit/s;
#: Neugebauer et al., Understanding PCIe performance for end host networking, SIGCOMM 2018), and each 256 bytes of data,
#: the payload that hosts set, come with 24 of framing, header and checksum (PCI Express Base Specification). 0.84 in
#: all; pinned copies were measured at 0.79 to 0.87 of their links.
PCIE_PAYLOAD_SHARE = 57.88 / 62.96 * 256 / (256 + 24)


class Link(Struct, frozen=True):
    """One GPU's links to the others of its machine, one way, in bytes/s.

    `peak_bytes_per_second`: all links together; `pair_bytes_per_second`: what the sparsest published board has between
    two GPUs, which a collective of any number of ranks can use.
    `source`: the vendor's document.
    """

    name: str
    peak_bytes_per_second: float
    pair_bytes_per_second: float
    source: str = ""


@lru_cache(maxsize=1)
def _file() -> dict[str, list[dict[str, Any]]]:
    return shipped_table(Path(__file__).with_name("links.toml"))


@lru_cache(maxsize=1)
def _table() -> list[tuple[re.Pattern[str], Link]]:
    return [(regex(entry["match"], re.IGNORECASE), _link(entry)) for entry in _file()["link"]]


def _link(entry: dict[str, float | str]) -> Link:
    return Link(str(entry["name"]), float(entry["peak"]) * 1e9, float(entry["pair"]) * 1e9, str(entry["source"]))


@lru_cache(maxsize=256)
def link_of(gpu_name: str) -> Link | None:
    """None for a GPU that is not in the table, for a name that fits boards with different links, and for ""."""
    return next((link for pattern, link in _table() if pattern.search(gpu_name)), None)


@lru_cache(maxsize=256)
def nvlink_bytes_per_second(gpu_name: str) -> float:
    """One NVLink of this GPU, one way; 0 where unknown. How many links it has is in the machine's topology."""
    entries = _file()["nvlink"]
    return next((each["one"] * 1e9 for each in entries if re.search(each["match"], gpu_name, re.IGNORECASE)), 0.0)


@lru_cache(maxsize=256)
def nvlink_source(gpu_name: str) -> str:
    """The vendor's document for `nvlink_bytes_per_second`; "" where unknown."""
    entries = _file()["nvlink"]
    return next((str(each["source"]) for each in entries if re.search(each["match"], gpu_name, re.IGNORECASE)), "")


def pcie_bytes_per_second(generation: float, lanes: float) -> float:
    """Bytes/s that a PCIe link carries one way, framing included; 0 for a generation that is not known."""
    return _PCIE_PER_LANE.get(int(generation), 0.0) * lanes
