"""Which processes are on which GPU? Lists that `nvidia-smi --query-compute-apps` and `nvidia-smi pmon` print.

Each listing becomes one sample per GPU: how many processes compute on it, the memory they hold together, and their use
of the GPU. A query names GPUs by UUID or bus: they are numbered in the order of their first appearance, which is the
driver's own if each has a process. Names of processes are not kept.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Timeline
from perfdoctor.patterns import regex
from perfdoctor.readers import text_rows
from perfdoctor.readers.machine.sample_times import USUAL_INTERVAL_NS, parsed

_MIB = 1 << 20
#: `# gpu pid type sm mem … command`, with date and time in front if requested.
_PMON = regex(r"#\s*(?:Date\s+Time\s+|Time\s+)?gpu\s+pid\s+type\b", re.IGNORECASE)
#: Columns that identify the GPU in a query, the best first.
_GPU_COLUMNS = ("gpu_uuid", "gpu_bus_id", "gpu_serial", "gpu_name")
_HEADLESS = regex(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}, ?\d{1,10}, ?.*\S")
_HEADLESS_COLUMNS = ("gpu_uuid", "pid", "process_name", "used_gpu_memory [MiB]")
_PID = regex(r"[0-9]{1,10}$")
_NUMBER = regex(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(?:MiB|%)?$")


class _Row(Struct, frozen=True):
    """One line: a process on a GPU, or a GPU without any (`pid` is empty). Numbers are None where unknown."""

    gpu: str
    pid: str
    time: str
    held_bytes: float | None
    used_share: float | None
    computes: bool


def looks_like(head: bytes) -> bool:
    """Do these first bytes begin such a list?"""
    first = text_rows.head_lines(head, 40)
    if any(_PMON.match(line) for line in first):
        return True
    return any(_query_columns(line) for line in first[:3]) or bool(first and _HEADLESS.fullmatch(first[0]))


def read(path: Path) -> Timeline:
    """A sample a GPU and listing. PerfdoctorError where the file cannot be read or holds no process."""
    rows, dropped = _parsed(text_rows.lines(path))
    samples = list(_samples(rows, path.name))
    if not samples:
        raise PerfdoctorError(
            f"{path.name} lists no process on a GPU",
            do="List them while the training runs: nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,used_memory "
            "--format=csv -l 1",
        )
    notes = _notes(path.name, samples, dropped)
    return text_rows.timeline("device_samples", text_rows.frame("device_samples", samples), "nvml", path.name, notes)


# --- lines → rows ----------------------------------------------------------------------------------------------------


def _parsed(lines: Iterable[str]) -> tuple[list[_Row], int]:
    """The rows of all listings, and how many lines are none. pmon repeats its header every few listings."""
    rows: list[_Row] = []
    dropped, take = 0, None
    for text in (line.strip() for line in lines):
        if (header := _reader(text)) is not None:
            take = header
        elif take is None and _HEADLESS.fullmatch(text):
            take = partial(_query_row, _HEADLESS_COLUMNS)
        if header is not None or not text or text.startswith("#"):
            continue
        row = take(text) if take else None
        if row is None:
            dropped += 1
        else:
            rows.append(row)
    return rows, dropped


def _reader(line: str) -> Callable[[str], _Row | None] | None:
    """The function that reads the rows below this header; None if the line is no header."""
    if _PMON.match(line):
        return partial(_pmon_row, line.lstrip("# ").lower().split())
    columns = _query_columns(line)
    return partial(_query_row, columns) if columns else None


def _query_columns(line: str) -> list[str] | None:
    """The columns of a query's header, which has `pid` and a column for the GPU; None for other lines."""
    columns = [cell.strip() for cell in line.split(",")]
    return columns if "pid" in columns and set(columns) & set(_GPU_COLUMNS) else None


def _query_row(columns: Sequence[str], line: str) -> _Row | None:
    """A row of a query; None where the line is none."""
    cells = [cell.strip() for cell in next(csv.reader([line]), [])]
    surplus = len(cells) - len(columns)
    if surplus > 0 and "process_name" in columns:  # commas in a name, which nvidia-smi does not quote
        at = columns.index("process_name")
        cells[at : at + surplus + 1] = [""]
    if len(cells) != len(columns):
        return None
    values = dict(zip(columns, cells, strict=True))
    gpu = next(values[column] for column in _GPU_COLUMNS if column in values)
    held = next((values[column] for column in columns if "memory" in column), "")
    if not _PID.match(values["pid"]):
        return None
    return _Row(gpu, values["pid"], values.get("timestamp", ""), _number(held, _MIB), None, computes=True)


def _pmon_row(columns: Sequence[str], line: str) -> _Row | None:
    """A row of pmon; None where the line is none. Without a process its number is `-`."""
    cells = line.split(maxsplit=len(columns) - 1)
    values = dict(zip(columns, cells, strict=False))
    gpu, pid = values.get("gpu", ""), values.get("pid", "")
    if not re.fullmatch(r"[0-9]{1,4}", gpu) or not (_PID.match(pid) or pid == "-"):
        return None
    time = " ".join(values[column] for column in ("date", "time") if column in values)
    used, held = _number(values.get("sm", ""), 0.01), _number(values.get("fb", ""), _MIB)
    return _Row(gpu, pid.strip("-"), time, held, used, computes="C" in values.get("type", "").upper())


def _number(text: str, scale: float) -> float | None:
    found = _NUMBER.match(text)
    return float(found.group(1)) * scale if found else None


# --- rows → samples --------------------------------------------------------------------------------------------------


def _samples(rows: Sequence[_Row], name: str) -> Iterator[Mapping[str, object]]:
    """One sample per listing and GPU, with the time of the listing's first line. `name`: of the file."""
    numbers: dict[str, int] = {}
    for row in rows:
        numbers.setdefault(row.gpu, int(row.gpu) if row.gpu.isdecimal() and len(row.gpu) < 5 else len(numbers))
    times = [parsed(row.time) for row in rows]
    are_timed = None not in times
    for number, (first, listing) in enumerate(_listings(rows)):
        at, on_clock = (times[first] if are_timed else None) or (number * USUAL_INTERVAL_NS, False)
        for gpu in dict.fromkeys(row.gpu for row in listing):
            own = [row for row in listing if row.gpu == gpu and row.pid and row.computes]
            yield {
                "device": numbers[gpu], "start_ns": at, "end_ns": at, "name": name, "is_on_clock": on_clock,
                "processes": float(len({row.pid for row in own})),
                "memory_used_bytes": _sum(row.held_bytes for row in own),
                "utilization_share": min(_sum(row.used_share for row in own), 1.0),
            }  # fmt: skip


def _listings(rows: Sequence[_Row]) -> Iterator[tuple[int, Sequence[_Row]]]:
    """First row and rows of each listing. A new one begins with a repeated process, an earlier GPU or a new time."""
    begin, seen, gpus = 0, set[tuple[str, str]](), set[str]()
    for at, row in enumerate(rows):
        before = rows[at - 1] if at > begin else None
        is_left = row.gpu in gpus and before is not None and before.gpu != row.gpu
        is_later = before is not None and before.gpu == row.gpu and before.time != row.time
        if (row.gpu, row.pid) in seen or is_left or is_later:
            yield begin, rows[begin:at]
            begin, seen, gpus = at, set(), set()
        seen.add((row.gpu, row.pid))
        gpus.add(row.gpu)
    if rows:
        yield begin, rows[begin:]


def _sum(values: Iterable[float | None]) -> float:
    """The sum; NaN where a value is unknown or there is none."""
    known = list(values)
    return float("nan") if None in known or not known else sum(each for each in known if each is not None)


def _notes(name: str, samples: Sequence[Mapping[str, object]], dropped: int) -> Iterator[str]:
    gpus = len({sample["device"] for sample in samples})
    listings = len({sample["start_ns"] for sample in samples})
    most = max(int(float(str(sample["processes"]))) for sample in samples)
    yield (
        f"{name}: {listings:,} list{'s' * (listings > 1)} of the processes on {gpus} GPU{'s' * (gpus > 1)}, "
        f"at most {most} on one."
    )
    if dropped:
        yield f"{name}: {dropped:,} line{'s are' if dropped > 1 else ' is'} no process: left out."
