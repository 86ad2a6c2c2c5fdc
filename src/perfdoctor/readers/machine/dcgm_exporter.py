"""Which GPU samples are in DCGM's metrics in Prometheus' text format? One scrape, or several in one file.

A line is `DCGM_FI_DEV_SM_CLOCK{gpu="0",modelName="…",…} 1410`, with a time in milliseconds behind it in some exports.
A scrape has each metric of a GPU once: a repeated one begins the next scrape. Labels name hosts, pods and users: only
the GPU's number and model are kept.
"""

from __future__ import annotations

import re

from perfdoctor.patterns import regex
from perfdoctor.readers.machine.sample_columns import DEVICE, GPU, TIME, Meaning, of_dcgm

_LINE = regex(r"DCGM_FI_(\w+)\{([^{}]*)\}\s+(\S+)(?:\s+(\d{10,19}))?$")
_LABEL = regex(r'(\w+)="((?:[^"\\]|\\.)*)"')
#: DCGM_FI_… → the short name under which dcgmi prints the same field (dcgm_fields.cpp).
_SHORT = {
    "DEV_POWER_USAGE": "POWER", "DEV_SM_CLOCK": "SMCLK", "DEV_MAX_SM_CLOCK": "SMMAX", "DEV_APP_SM_CLOCK": "SACLK",
    "DEV_MEM_CLOCK": "MMCLK", "DEV_GPU_TEMP": "TMPTR", "DEV_GPU_UTIL": "GPUTL", "DEV_MEM_COPY_UTIL": "MCUTL",
    "DEV_FB_USED": "FBUSD", "DEV_FB_TOTAL": "FBTTL", "DEV_ENFORCED_POWER_LIMIT": "EPLMT",
    "DEV_POWER_MGMT_LIMIT_DEF": "PMDEF", "DEV_CLOCK_THROTTLE_REASONS": "DVCCTR", "DEV_CLOCKS_EVENT_REASONS": "DVCCTR",
    "DEV_PCIE_TX_THROUGHPUT": "TXTPT", "DEV_PCIE_RX_THROUGHPUT": "RXTPT", "PROF_PCIE_TX_BYTES": "PCITX",
    "PROF_PCIE_RX_BYTES": "PCIRX", "PROF_NVLINK_TX_BYTES": "NVLTX", "PROF_NVLINK_RX_BYTES": "NVLRX",
    "PROF_SM_ACTIVE": "SMACT", "PROF_PIPE_TENSOR_ACTIVE": "TENSO", "PROF_DRAM_ACTIVE": "DRAMA",
}  # fmt: skip
#: The columns of `rows`: a GPU's number, its model, the time, and one a metric.
_METRICS = tuple(dict.fromkeys(_SHORT.values()))
MEANINGS: tuple[Meaning | None, ...] = (
    Meaning(DEVICE), Meaning(GPU), Meaning(TIME), *(of_dcgm(short, "") for short in _METRICS),
)  # fmt: skip


def is_metric(line: str) -> bool:
    """Is it a line of DCGM's metrics?"""
    return line.startswith("DCGM_FI_") and _LINE.match(line) is not None


class Scrapes:
    """Turns lines into rows of text, one row a GPU and scrape."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self._current: dict[int, list[str]] = {}

    def take(self, line: str) -> bool:
        """Add a line; False if it is neither a metric nor a comment. Metrics that are not needed are left out."""
        found = _LINE.match(line)
        if not found:
            return line.startswith(("# HELP", "# TYPE", "# EOF"))
        labels = dict(_LABEL.findall(found.group(2)))
        gpu, short = labels.get("gpu", ""), _SHORT.get(found.group(1))
        if short is None or not re.fullmatch(r"\d{1,4}", gpu):
            return short is None
        place = 3 + _METRICS.index(short)
        row = self._current.get(int(gpu))
        if row is None or row[place]:
            row = [gpu, labels.get("modelName", ""), found.group(4) or "", *("" for _ in _METRICS)]
            self._current[int(gpu)] = row
            self.rows.append(row)
        row[place] = found.group(3)
        return True
