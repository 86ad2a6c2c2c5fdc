"""Which bandwidth have the links between the GPUs of one machine, by the GPU's name, and PCIe?"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

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
    """One GPU's links to the others of its machine, one way, in bytes/s. `source` is the vendor's document.

    `peak_bytes_per_second` is of all links together, `pair_bytes_per_second` of those between two GPUs on the sparsest
    published board, which a collective of any number of ranks can use, `between_bytes_per_second` of those between two
    on the densest, which no copy from one to the other exceeds.
    """

    name: str
    peak_bytes_per_second: float
    pair_bytes_per_second: float
    between_bytes_per_second: float
    source: str = ""


@lru_cache(maxsize=1)
def _file() -> dict[str, list[dict[str, Any]]]:
    return shipped_table(Path(__file__).with_name("links.toml"))


@lru_cache(maxsize=256)
def _entry(table: str, gpu_name: str) -> dict[str, Any] | None:
    """The first entry of this table in links.toml that fits the GPU's name."""
    return next((each for each in _file()[table] if re.search(each["match"], gpu_name, re.IGNORECASE)), None)


@lru_cache(maxsize=256)
def link_of(gpu_name: str) -> Link | None:
    """The links of this GPU. None where it is not in the table, or its name fits boards with different links."""
    entry = _entry("link", gpu_name)
    if entry is None:
        return None
    peak, pair, between = (rate * 1e9 for rate in (entry["peak"], entry["pair"], entry.get("between", entry["peak"])))
    return Link(entry["name"], peak, pair, between, entry["source"])


def nvlink_bytes_per_second(gpu_name: str) -> float:
    """One NVLink of this GPU, one way; 0 where unknown. How many links it has is in the machine's topology."""
    entry = _entry("nvlink", gpu_name)
    return entry["one"] * 1e9 if entry else 0.0


def nvlink_source(gpu_name: str) -> str:
    """The vendor's document for `nvlink_bytes_per_second`; "" where unknown."""
    entry = _entry("nvlink", gpu_name)
    return str(entry["source"]) if entry else ""


def lacks_peer_access(gpu_name: str) -> bool:
    """Is it known that no GPU of this name may access the memory of another one?"""
    return _entry("no_peer_access", gpu_name) is not None


def lacks_gpudirect(gpu_name: str) -> bool:
    """Is it known that no network adapter may access the memory of a GPU of this name (GPUDirect RDMA)?"""
    return _entry("no_gpudirect", gpu_name) is not None


def pcie_bytes_per_second(generation: float, lanes: float) -> float:
    """Bytes/s that a PCIe link carries one way, framing included; 0 for a generation that is not known."""
    return _PCIE_PER_LANE.get(int(generation), 0.0) * lanes
