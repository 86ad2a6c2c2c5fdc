"""Which GPU samples are in DCGM's metrics in Prometheus' text format? One scrape, or several in one file.

A line is `DCGM_FI_DEV_SM_CLOCK{gpu="0",modelName="…",…} 1410`, with a time in milliseconds behind it in some exports.
A scrape has each metric of a GPU once: a repeated one begins the next scrape. Labels name hosts, pods and users: only
the GPU's number and model are kept.
"""

from __future__ import annotations

import re
from functools import cache

from perfdoctor.patterns import regex
from perfdoctor.readers.machine.sample_columns import DEVICE, GPU, TIME, Meaning, names, of_dcgm

_LINE = regex(r"DCGM_FI_(\w+)\{([^{}]*)\}\s+(\S+)(?:\s+(\d{10,19}))?$")
_LABEL = regex(r'\b(\w{1,80})="((?:[^"\\]|\\.){0,400})"')


@cache
def _metrics() -> tuple[str, ...]:
    """The short names of the metrics that are kept, each of which is a column of `rows`."""
    return tuple(dict.fromkeys(names()["dcgm_exporter"].values()))


def meanings() -> tuple[Meaning | None, ...]:
    """What the columns of `rows` are: a GPU's number, its model, the time, and one a metric."""
    return (Meaning(DEVICE), Meaning(GPU), Meaning(TIME), *(of_dcgm(short, "") for short in _metrics()))


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
        gpu, short = labels.get("gpu", ""), names()["dcgm_exporter"].get(found.group(1))
        if short is None or not re.fullmatch(r"\d{1,4}", gpu):
            return short is None
        place = 3 + _metrics().index(short)
        row = self._current.get(int(gpu))
        if row is None or row[place]:
            row = [gpu, labels.get("modelName", ""), found.group(4) or "", *("" for _ in _metrics())]
            self._current[int(gpu)] = row
            self.rows.append(row)
        row[place] = found.group(3)
        return True
