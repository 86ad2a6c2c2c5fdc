"""How do the samples of the processor's cores become a signal? Differences of the kernel's counters, a row an interval.

The file is perfdoctor's own (`recording/tools/cpu.py`). A counter that decreases was started anew: unknown there.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Text, Timeline
from perfdoctor.readers import text_rows
from perfdoctor.vocabulary.signals import CPU_NUMBERS

_TIME = "unix_ns"
#: By the numbers of the signal the counters in the file, in ns: their rise by time is a mean of cores or threads.
_COUNTERS: Mapping[str, str] = {
    "busy_cores": "busy_ns", "idle_cores": "idle_ns", "steal_cores": "steal_ns", "program_cores": "program_cpu_ns",
    "recorder_cores": "recorder_cpu_ns", "waiting_threads": "program_delay_ns", "pressure_share": "pressure_ns",
    "throttled_share": "throttled_ns",
}  # fmt: skip
#: The kernel of 64-bit Linux counts no further.
_MOST = float(1 << 62)


def looks_like(head: bytes) -> bool:
    """Do these first bytes begin samples of a processor's cores?"""
    return head.startswith(b"unix_ns,cores,allowed_cores,")


def read(path: Path) -> Timeline:
    """A row from each sample to the next. PerfdoctorError where the file cannot be read or holds fewer than two."""
    rows = list(_rows(path))
    at = np.array([int(row[_TIME]) for row in rows], dtype=np.int64)
    if at.size < 2:
        raise PerfdoctorError(f"{path.name} holds fewer than two samples", do="Record again with perfdoctor run.")
    columns = {name: np.array([_number(row.get(name)) for row in rows]) for name in {*_COUNTERS.values(), *CPU_NUMBERS}}
    passed = np.diff(at)
    numbers = {name: columns[name][1:] for name in CPU_NUMBERS}
    numbers |= {name: _rates(columns[counter], passed) for name, counter in _COUNTERS.items()}
    count = at.size - 1
    frame = Frame({
        "rank": np.full(count, UNKNOWN, np.int64), "start_ns": at[:-1], "end_ns": at[1:],
        "name": Text.constant(path.name, count), "is_on_clock": np.ones(count, dtype=bool), **numbers,
    })  # fmt: skip
    return text_rows.timeline("cpu_samples", frame, "cpu", path.name)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    """The whole rows, in the order of their times; a row that was cut off, or is damaged, is left out."""
    latest = 0
    for row in csv.DictReader(text_rows.lines(path)):
        at = row.get(_TIME) or ""
        if (
            None not in row
            and None not in row.values()
            and at.isascii()
            and at.isdecimal()
            and latest < int(at) < _MOST
        ):
            latest = int(at)
            yield row


def _number(cell: str | None) -> float:
    try:
        value = float(cell or "nan")
    except ValueError:
        return float("nan")
    return value if 0 <= value < _MOST else float("nan")


def _rates(counted_ns: Floats, passed_ns: Floats) -> Floats:
    """How fast a counter rises from each sample to the next; NaN where it decreases."""
    rose = np.diff(counted_ns)
    return np.where(rose >= 0, rose / passed_ns, np.nan)
