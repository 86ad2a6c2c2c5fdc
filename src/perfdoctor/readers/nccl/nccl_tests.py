"""How fast are the links when nothing else runs? Read from the tables that nccl-tests print.

A row is size, count, type, operation, root (newer versions), and twice time, algorithm bandwidth, bus bandwidth,
errors: out of place and in place; GB are 1e9 bytes (nccl-tests, doc/PERFORMANCE.md). With NCCL_DEBUG=INFO lines of
NCCL may split a row, which is printed in three pieces: these are joined again. Older versions do not print the name of
the collective; an all-reduce is then recognised by the ratio of the two bandwidths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Timeline
from perfdoctor.patterns import regex
from perfdoctor.readers import text_rows

_HEADER = regex(r"#\s+size\s+count\s.*\btime\s+algbw\s+busbw\b")
_STARTS = regex(r"#\s*Collective test starting:\s*(\w+)_perf")
_RANK = regex(r"#\s+Rank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)$")
_BEGIN = regex(r"\s*(\d{1,18})\s+(\d{1,18})\s+([A-Za-z]\w*)\s+([A-Za-z]\w*)\b(.*)$")
_BARE = regex(r"\s*(\d{1,18})\s+(\d{1,18})\s+([a-z]\w*)\s+(-?\d+)\b(.*)$")  # all_gather has no operation
_NUMBER = regex(r"\d{1,14}(\.\d{1,9})?$|N/A$", re.ASCII)
_KINDS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "broadcast": "broadcast", "reduce": "reduce", "sendrecv": "send_recv",
}  # fmt: skip
#: With two ranks an all-reduce and a broadcast have the same factor.
_FEWEST_RANKS = 3
#: Times are printed with four digits or more, bandwidths with two behind the point.
_ROUNDING = 0.01
#: The values of a row behind its operation and root: time, algbw, busbw, errors, twice.
_VALUES = 8


class NcclTestTables(Struct):
    """The rows of all tables in one output, which is added line by line."""

    rows: list[dict[str, object]] = field(default_factory=list)
    kind: str = ""
    gpus: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    incomplete: int = 0
    _in_table: bool = False
    _has_root: bool = False
    _size: int = 0
    _values: list[str] = field(default_factory=list)
    _awaiting: bool = False

    def take(self, text: str) -> None:
        """Add a line or a piece of one, if it belongs to a table."""
        if text.startswith("#"):
            self._header(text)
            return
        begin = _BEGIN.match(text) or _BARE.match(text)
        if self._in_table and begin:
            self.incomplete += self._awaiting
            self._size, self._values, self._awaiting = int(begin.group(1)), [], True
            text = begin.group(5)
            if self._has_root and _BEGIN.match(begin.string):
                text = re.sub(r"^\s*-?\d+\b(?!\.)", "", text, count=1)
        words = text.split()
        if not self._awaiting or not words or not all(_NUMBER.match(word) for word in words):
            return
        self._values += words
        if len(self._values) >= _VALUES:
            self._awaiting = False
            self._row()

    def _header(self, text: str) -> None:
        if found := _STARTS.match(text):
            self.kind = _KINDS.get(found.group(1), found.group(1))
        elif found := _RANK.match(text):
            self.gpus.append(found.group(3).strip())
            self.hosts.add(found.group(2))
        elif _HEADER.match(text):
            self._in_table, self._has_root = True, " root " in text

    def close(self) -> None:
        """End the output: an unknown kind is found from the largest message, whose rounding matters least."""
        if self.rows and not self.kind:
            largest = max(self.rows, key=lambda row: int(str(row["bytes"])))
            self.kind = _kind_of(largest, len(self.gpus))
            for row in self.rows:
                row["name"] = self.kind

    def _row(self) -> None:
        if len(self._values) != _VALUES:
            self.incomplete += 1
            return
        for time, algorithm, bus in (self._values[0:3], self._values[4:7]):
            if "N/A" in (time, algorithm, bus) or not self._size:
                continue
            self.rows.append({
                "name": self.kind,
                "source": "nccl-tests", "gpu": self.gpus[0] if self.gpus else "", "ranks": len(self.gpus) or -1,
                "machines": len(self.hosts) or -1,
                "bytes": self._size, "time_ns": round(float(time) * 1e3), "bus_bytes_per_second": float(bus) * 1e9,
            })  # fmt: skip


def _kind_of(row: dict[str, object], ranks: int) -> str:
    """An all-reduce if bus bandwidth / algorithm bandwidth is 2 (n - 1) / n, else "": kinds share all other factors."""
    size, time_ns, bus = (float(str(row[column])) for column in ("bytes", "time_ns", "bus_bytes_per_second"))
    if ranks < _FEWEST_RANKS or not time_ns:
        return ""
    factor = 2 * (ranks - 1) / ranks
    return "all_reduce" if abs(bus / (size / time_ns * 1e9) / factor - 1) < _ROUNDING else ""


def looks_like(head: bytes) -> bool:
    """Do these first bytes hold the header of a table of nccl-tests?"""
    lines = text_rows.head_lines(head)
    return (
        any(_HEADER.match(line) or _STARTS.match(line) for line in lines)
        or sum(_RANK.match(line) is not None for line in lines) > 1
    )


def read(path: Path) -> Timeline:
    """The measured messages. PerfdoctorError where the file cannot be read or holds no row."""
    tables = NcclTestTables()
    for line in text_rows.lines(path):
        tables.take(line)
    tables.close()
    if not tables.rows:
        raise PerfdoctorError(f"{path.name} holds no row of nccl-tests", do="Let the test run to its end.")
    rows = text_rows.frame("link_tests", tables.rows)
    return text_rows.timeline("link_tests", rows, "nccl-tests", path.name, notes(path.name, tables))


def notes(name: str, tables: NcclTestTables) -> Iterator[str]:
    """Notes that say what was measured in the file `name`, and what could not be read."""
    if tables.rows:
        best = max(tables.rows, key=lambda row: float(str(row["bus_bytes_per_second"])))
        kind = str(best["name"]).replace("_", "-") or "collective"
        speed = float(str(best["bus_bytes_per_second"])) / 1e9
        yield (
            f"{name}: nccl-tests of {len(tables.gpus) or 'some'} GPUs, {kind} up to {speed:.1f} GB/s of "
            f"bus bandwidth, in {len(tables.rows):,} measurements."
        )
    if tables.incomplete:
        yield f"{name}: {tables.incomplete:,} rows of nccl-tests are incomplete: left out."
