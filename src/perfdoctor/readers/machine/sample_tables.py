"""How do lines of text become tables of samples? By the header of each tool.

A further header begins a new table. Of a CSV without a header only columns are read that cannot be mistaken: a GPU's
number, a time, and NVML's mask of reasons.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field

from perfdoctor.model.timeline import SAMPLE_NUMBERS
from perfdoctor.patterns import regex
from perfdoctor.readers import text_rows
from perfdoctor.readers.machine import dcgm_exporter
from perfdoctor.readers.machine import sample_columns as device_columns
from perfdoctor.readers.machine.sample_columns import DEVICE, GPU, REASONS, TIME, Meaning
from perfdoctor.readers.machine.sample_times import times_of

#: Words separated by spaces, or with --format=csv by commas.
_DMON_HEADER = regex(r"#\s*(?:Date,?\s+)?(?:Time,?\s+)?gpu(?:,|\s)(?!.*\bpid\b)", re.IGNORECASE)
_BETWEEN = regex(r"[,\s]+")
_DCGM_HEADER = regex(r"#\s*Entity\b")
_ENTITY = regex(r"GPU\s+(\d+)\s")
_MASK = regex(r"0x[0-9a-fA-F]{16}")
_UUID = regex(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}")
_WITH_UNIT = regex(r"[-\d.]+ (W|MHz|MiB|%)|\[(N/A|Not Supported)\]|N/A|\[Unknown Error\]")
_NEEDED = frozenset((*SAMPLE_NUMBERS, REASONS))
#: NVML's mask of supported reasons has most bits set; that of the active ones at most so many.
_MOST_ACTIVE_BITS = 5


#: Adds a line to a table; False where it is no row of it.
_Take = Callable[[str], bool]


class SampleTable(Struct):
    """Rows under one header, as text. `meanings`: one a column, None for what is not kept."""

    meanings: Sequence[Meaning | None]
    rows: list[list[str]] = field(default_factory=list)


class SampleTables(Struct):
    tables: list[SampleTable] = field(default_factory=list)
    dropped: int = 0
    lacks_header: bool = False


def looks_like(head: bytes) -> bool:
    """Do these first bytes begin samples of GPUs?"""
    first = text_rows.head_lines(head, 40)
    if any(_DMON_HEADER.match(line) or _DCGM_HEADER.match(line) or dcgm_exporter.is_metric(line) for line in first):
        return True
    return bool(first) and (any(_csv_header(line) for line in first[:3]) or _is_headless(first[0]))


def parsed(lines: Iterator[str]) -> SampleTables:
    """The tables of a file. A line that begins a format decides how the following lines are read."""
    found = SampleTables()
    take: _Take | None = None
    for line in lines:
        if not line.strip():
            continue
        if _DMON_HEADER.match(line):
            take = _columns_of(line, found, device_columns.of_dmon)
        elif _DCGM_HEADER.match(line):
            take = _columns_of(line, found, device_columns.of_dcgm)
        elif take is None and dcgm_exporter.is_metric(line):
            scrapes = dcgm_exporter.Scrapes()
            found.tables.append(SampleTable(dcgm_exporter.meanings(), scrapes.rows))
            take = scrapes.take
            take(line)
        elif (header := _csv_header(line)) is not None:
            take = _csv_rows(line, header, found)
        elif take is None and _is_headless(line):
            take = _headless_rows(line, found)
            take(line)
        elif take is None and line.startswith(("# HELP", "# TYPE")):  # above the first metric of DCGM
            continue
        elif take is None or not take(line):
            found.dropped += 1
    return found


def _columns_of(header: str, found: SampleTables, meaning: Callable[[str, str], Meaning | None]) -> _Take:
    """Reads rows of dmon and dcgmi, which are words. The line below the header may contain units."""
    names = _words(header)
    table = SampleTable([meaning(name, "") for name in names])
    found.tables.append(table)

    def take(line: str) -> bool:
        if entity := _ENTITY.match(line.lstrip()):
            cells = [entity.group(1), *line.lstrip()[entity.end() :].split()]
        else:
            cells = _words(line)
        if line.lstrip().startswith("#") or cells[:1] in (["ID"], ["Id"]):
            if len(cells) == len(names) and not table.rows:
                table.meanings = [meaning(*pair) for pair in zip(names, cells, strict=True)]
            return True
        if len(cells) != len(names):
            return False
        device = _device_of(table)
        if device is None or not _is_index(cells[device]):
            return False
        table.rows.append(cells)
        return True

    return take


def _device_of(table: SampleTable) -> int | None:
    """Which column has the GPU's number; None where none does, as with a damaged line of units."""
    return next((at for at, meaning in enumerate(table.meanings) if meaning and meaning.column == DEVICE), None)


def _words(line: str) -> list[str]:
    return [word for word in _BETWEEN.split(line.lstrip("# ")) if word]


def _is_index(cell: str) -> bool:
    """Is it a GPU's number, of at most four digits?"""
    return re.fullmatch(r"\s*[0-9]{1,4}\s*", cell) is not None


def _csv_header(line: str) -> list[Meaning | None] | None:
    """The columns of a header, which has a GPU or a time and a measured number; None if the line is no header."""
    delimiter = _delimiter(line)
    # A row begins with a number or a time. A header with all fields of a query has 2,000 characters.
    if delimiter is None or line.lstrip(' "')[:1].isdecimal() or len(line) > 4_000:
        return None
    meanings = [device_columns.of_query(name) for name in next(csv.reader([line], delimiter=delimiter), [])]
    columns = {meaning.column for meaning in meanings if meaning}
    return meanings if columns & _NEEDED and columns & {DEVICE, TIME, GPU} else None


def _delimiter(line: str) -> str | None:
    return next((each for each in (";", "\t", ",") if each in line), None)


def _csv_rows(header: str, meanings: list[Meaning | None], found: SampleTables) -> _Take:
    """Reads the rows below a header. Of a column that is there twice, by the driver's two names, the first counts."""
    delimiter = _delimiter(header) or ","
    seen: set[tuple[str, int]] = set()
    for place, meaning in enumerate(meanings):
        if meaning and (meaning.column, meaning.bit) in seen:
            meanings[place] = None
        elif meaning:
            seen.add((meaning.column, meaning.bit))
    return _cells(SampleTable(meanings), delimiter, found)


def _cells(table: SampleTable, delimiter: str, found: SampleTables) -> _Take:
    """Reads rows of cells into the table, which is a further one of those found."""
    found.tables.append(table)
    device = _device_of(table)

    def take(line: str) -> bool:
        cells = next(csv.reader([line], delimiter=delimiter), [])
        if len(cells) != len(table.meanings):
            return False
        if delimiter != ",":  # commas that do not separate columns are decimal commas
            cells = [cell.replace(",", ".") for cell in cells]
        if device is not None and not _is_index(cells[device]):
            return False
        table.rows.append(cells)
        return True

    return take


def _is_headless(line: str) -> bool:
    """Is it a row of a query without a header? It has values that only a query prints."""
    cells = [cell.strip() for cell in line.split(",")]
    return len(cells) > 2 and (
        any(_MASK.fullmatch(cell) or _UUID.fullmatch(cell) for cell in cells)
        or sum(_WITH_UNIT.fullmatch(cell) is not None for cell in cells) > 1
    )


def _headless_rows(first: str, found: SampleTables) -> _Take:
    """Reads rows like the first one, of which only columns that cannot be mistaken are kept."""
    cells = [cell.strip() for cell in first.split(",")]
    masks = [place for place, cell in enumerate(cells) if _MASK.fullmatch(cell)]
    active = [place for place in masks if int(cells[place], 16).bit_count() <= _MOST_ACTIVE_BITS]
    meanings: list[Meaning | None] = [None] * len(cells)
    if _is_index(cells[0]):
        meanings[0] = Meaning(DEVICE)
    elif times_of([cells[0]]) is not None:
        meanings[0] = Meaning(TIME)
        if _is_index(cells[1]):
            meanings[1] = Meaning(DEVICE)
    if len(active) == 1:
        meanings[active[0]] = Meaning(REASONS)
    found.lacks_header = True
    return _cells(SampleTable(meanings), ",", found)
