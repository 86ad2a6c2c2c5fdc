"""Which launches did Nsight Compute print as CSV, and what did it measure of them?

`--page raw` is wide: one row a launch, one column a metric, and a second row with the units. `--page details` is long:
one row a metric or a rule's result. ncu's messages (`==PROF== …`) and the program's own output may stand between the
rows. A file that went through a spreadsheet has lost its quotes, or has `;` for commas.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isnan

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.readers.ncu.cell_numbers import has_decimal_comma, number
from perfdoctor.readers.ncu.metric_names import (
    Launch,
    RuleAdvice,
    base_unit,
    is_one_of_many,
    speedup_share,
    wanted_names,
)

_HEADER = regex(r'^\s*"?ID"?\s*([,;\t])\s*"?Process ID"?\s*\1', re.MULTILINE)
_NOTICE = regex(r"^==\w+==.*$\n?", re.MULTILINE)
_BYTE_ORDER = (b"\xff\xfe", b"\xfe\xff")
_NAME, _CAPABILITY = "device__attribute_display_name", "device__attribute_compute_capability_{}"
#: No version of a GPU is higher.
_MOST = 1000
#: The type of what a rule says that could not be evaluated: no advice, and it names folders of the machine.
_FAILED = "ERR"
_AGAIN = "Print it again: ncu --import REPORT --csv --page raw."


class Printed(Struct, frozen=True):
    """The contents of a file. `dropped`: rows that do not fit the table. `unitless`: a table had no row of units."""

    launches: tuple[Launch, ...]
    dropped: int
    unitless: bool


def looks_like(head: bytes) -> bool:
    """Do these first bytes contain the header of ncu's table?"""
    return _HEADER.search(text_of(head)) is not None


def text_of(data: bytes) -> str:
    """The text of a file. A redirected console may write UTF-16, and a spreadsheet a byte order mark."""
    if data.startswith(_BYTE_ORDER):
        return data[: len(data) // 2 * 2].decode("utf-16", errors="replace").replace("\0", "")
    return data.decode("utf-8-sig", errors="replace").replace("\0", "")


def parse(data: bytes, file: str) -> Printed:
    """All launches of a file. PerfdoctorError where it holds no table, or one without a single launch."""
    text = text_of(data)
    begin = _HEADER.search(text)
    if begin is None:
        raise PerfdoctorError(f"{file} holds no table of Nsight Compute", do=_AGAIN)
    rows = csv.reader(io.StringIO(_NOTICE.sub("", text[begin.start() :]), newline=""), delimiter=begin[1])
    try:
        tables = list(_tables(rows))
    except csv.Error as error:
        raise PerfdoctorError(f"{file} is damaged: {error}", do=_AGAIN) from error
    launches = [launch for table in tables for launch in table.launches()]
    if not launches:
        raise PerfdoctorError(f"{file} holds no measured kernel", do="Record again: ncu found nothing to measure.")
    dropped, unitless = sum(table.dropped for table in tables), any(table.unitless for table in tables)
    return Printed(tuple(launches), dropped, unitless)


class _Table(Struct):
    header: list[str]
    rows: list[list[str]]
    units: list[str]
    dropped: int

    @property
    def is_long(self) -> bool:
        return "Metric Name" in self.header

    @property
    def unitless(self) -> bool:
        return not self.is_long and not self.units and bool(self.rows)

    def launches(self) -> Iterator[Launch]:
        cells = (dict(zip(self.header, row, strict=False)) for row in self.rows)
        yield from _long(list(cells)) if self.is_long else _wide(list(cells), self.metrics)

    @property
    def metrics(self) -> Mapping[str, str | None]:
        """The columns of a wide table that are wanted, each with its unit; None if unknown."""
        units, wanted = dict(zip(self.header, self.units, strict=False)), wanted_names()
        return {name: units.get(name) for name in self.header if name in wanted or is_one_of_many(name)}


def _tables(rows: Iterator[list[str]]) -> Iterator[_Table]:
    """Each header begins a table: a file may hold several, one behind the other."""
    table = _Table([], [], [], 0)
    for raw in rows:
        row = [cell.strip() for cell in raw]
        if row[:2] == ["ID", "Process ID"]:
            if table.rows:
                yield table
            table = _Table(row, [], [], 0)
        elif _is_row(row, table):
            table.rows.append(row)
        elif not table.rows and len(row) >= 2 and not row[0] and not row[1] and any(row):
            table.units = row
        elif any(row):
            table.dropped += 1
    if table.header:
        yield table


def _is_row(row: Sequence[str], table: _Table) -> bool:
    """Is it a row of the table? A long table's last five columns, of rules, may be missing where there is no rule."""
    least = len(table.header) - 5 if table.is_long else len(table.header)
    return bool(row) and row[0].isdecimal() and least <= len(row) <= len(table.header) + 1


def _wide(rows: Sequence[Mapping[str, str]], metrics: Mapping[str, str | None]) -> Iterator[Launch]:
    comma = has_decimal_comma(row.get(name, "") for row in rows for name in metrics)
    for row in rows:
        launch = _launch(row)
        for name, unit in metrics.items():
            if unit is None and not _needs_no_unit(name):
                continue
            value = number(row.get(name, ""), decimal_comma=comma)
            if not isnan(value):
                # ncu prints no unit for a chip that it does not know, and cannot scale then.
                launch.metrics[name] = [(value, unit or base_unit(name))]
        launch.gpu = row.get(_NAME, "")
        major, minor = (
            number(row.get(_CAPABILITY.format(part), ""), decimal_comma=comma) for part in ("major", "minor")
        )
        if launch.compute_capability < 0 and 0 <= major < _MOST and 0 <= minor < _MOST:
            launch.compute_capability = int(10 * major + minor)
        yield launch


def _needs_no_unit(name: str) -> bool:
    """Percentages, ratios and plain counts are never scaled; times, sizes and rates are, by an unknown factor."""
    return "pct" in name or name.endswith(".ratio") or name.startswith("launch__") or "_sectors_" in name


def _long(rows: Sequence[Mapping[str, str]]) -> Iterator[Launch]:
    comma = has_decimal_comma(row.get("Metric Value", "") for row in rows)
    launch, of = Launch(""), ("", "", "")
    for row in rows:
        key = (row["ID"], row.get("Process ID", ""), row.get("Kernel Name", ""))
        if key != of:
            if of[0]:
                yield launch
            launch, of = _launch(row), key
        name = row.get("Metric Name", "")
        if name:
            value = number(row.get("Metric Value", ""), decimal_comma=comma)
            launch.metrics.setdefault(name, []).append((value, row.get("Metric Unit", "")))
        if row.get("Rule Name") and row.get("Rule Type") != _FAILED:
            share = speedup_share(number(row.get("Estimated Speedup", "").rstrip("%"), decimal_comma=comma))
            is_global = row.get("Estimated Speedup Type", "").lower() == "global"
            launch.advice.append(RuleAdvice(row["Rule Name"], share, is_global, row.get("Rule Description", "")))
    if of[0]:
        yield launch


def _launch(row: Mapping[str, str]) -> Launch:
    capability = re.fullmatch(r"(\d+)[.,](\d)", row.get("CC", ""))
    return Launch(
        row.get("Kernel Name", ""),
        device=_whole(row.get("Device", "")),
        process=_whole(row.get("Process ID", "")),
        grid=_sizes(row.get("Grid Size", "")),
        block=_sizes(row.get("Block Size", "")),
        compute_capability=int(capability[1]) * 10 + int(capability[2]) if capability else -1,
    )


def _whole(text: str) -> int:
    """The number of a device or process; -1 where the text is none."""
    return int(text) if text.isdecimal() and len(text) < 10 else -1


def _sizes(text: str) -> tuple[int, ...]:
    """`(256, 1, 1)` → (256, 1, 1); () where it is anything else."""
    found = re.fullmatch(r"\(\s*(\d{1,10})\s*,\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)", text)
    sizes = tuple(int(size) for size in found.groups()) if found else ()
    return sizes if all(sizes) else ()  # no launch has a size of 0
