"""What would a recording be if it had gone on for longer? The same rows again and again, each time later.

    python benchmarks/grown.py SOURCE INTO --copies 16       a trace of torch.profiler (.json, .json.gz) or an nsys SQLite export
    python benchmarks/grown.py SOURCE INTO --mb 4000         of about so many megabytes, uncompressed

Every copy begins where the one before it ends. Times are shifted, and so are the numbers by which rows find each other
(correlation, flow, op, frame) and the numbers of steps: nothing is there twice but names, as in a longer recording of the
same training. Names, stacks and shapes therefore compress and repeat as well as in the source. A trace is written as text,
copy by copy: memory does not grow with the file.
"""

from __future__ import annotations

import argparse
import gzip
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from labels import recordings

_FIXTURE = Path(__file__).parents[1] / "fixtures" / "launch-bound"


def kineto_source(*, fixture: bool = False) -> Path:
    """A recording of five steps with 216,000 events, or one of eight with 3,899 that comes with the project."""
    public = None if fixture else recordings()
    return public / "kineto" / "v100-rank1-of-2.json.gz" if public else _FIXTURE / "torch" / "rank0.pt.trace.json.gz"


def nsys_source(*, fixture: bool = False) -> Path:
    """An export with 4,010 kernels and 19,118 NVTX ranges of ops, or one of 1,280 each that comes with the project."""
    public = None if fixture else recordings()
    return public / "nsys" / "mfu_2gpu_before.sqlite" if public else _FIXTURE / "nsys" / "profile.sqlite"


def nsys_steps_source(folder: Path, tool: str | None, *, fixture: bool = False) -> Path:
    """An export of 29 steps with 19,984 kernels, samples of the host and its scheduling, made in this folder by nsys.

    Without nsys, the one that comes with the project.
    """
    public, into = recordings(), folder / "steps.sqlite"
    if fixture or public is None or tool is None:
        return nsys_source(fixture=True)
    if not into.exists():
        report = public / "nsys" / "sc21" / "dali_amp.qdrep"
        command = [tool, "export", "--type", "sqlite", "--output", into, report]
        subprocess.run(command, check=True, capture_output=True)
    return into


def grow(source: Path, into: Path, copies: int) -> Path:
    """The recording as if it had gone on for so many times as long. Returns `into`."""
    (grow_nsys if source.suffix == ".sqlite" else grow_kineto)(source, into, copies)
    return into


def copies_for(source: Path, megabytes: float) -> int:
    """How many of them make a file of about this size, at least one."""
    size = source.stat().st_size if source.suffix == ".sqlite" else len(_text(source))
    return max(1, round(megabytes * 1e6 / size))


# --- traces of torch.profiler --------------------------------------------------------------------------------------

#: By what rows find each other; each stands before a number, in quotes in old traces.
_IDS = "correlation|[Ee]xternal id|id|Ev Idx|Sequence number|Record function id|Python id|Python parent id"
_NUMBER = re.compile(rf'("(?:external )?ts": ?|"(?:{_IDS})": ?"?|ProfilerStep#)(\d+)'.encode())
#: What is there once, however long a recording is: no category, or the profiler's own.
_PROFILERS_OWN = ("", "Trace")


class _Head(msgspec.Struct):
    """What decides whether an event is repeated, and how long a copy is (µs)."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0


@dataclass(frozen=True)
class Pattern:
    """The repeated events as a format of bytes, each number of it, and what a copy adds to it."""

    text: bytes
    numbers: np.ndarray[Any, np.dtype[np.int64]]
    steps: np.ndarray[Any, np.dtype[np.int64]]

    def copy(self, number: int) -> bytes:
        return self.text % tuple((self.numbers + number * self.steps).tolist())


def grow_kineto(source: Path, into: Path, copies: int) -> None:
    document = msgspec.json.decode(_text(source), type=dict[str, msgspec.Raw])
    raw = msgspec.json.decode(document["traceEvents"], type=list[msgspec.Raw])
    heads = msgspec.json.decode(document["traceEvents"], type=list[_Head])
    again = [head.ph != "M" and head.cat not in _PROFILERS_OWN for head in heads]
    span_us = _span_us([head for head, repeated in zip(heads, again, strict=True) if repeated])
    once = [
        _stretched(bytes(event), head, span_us * (copies - 1))
        for event, head, repeated in zip(raw, heads, again, strict=True)
        if not repeated
    ]
    pattern = _pattern(b",\n".join(bytes(e) for e, repeated in zip(raw, again, strict=True) if repeated), span_us)
    del raw, heads
    with _opened(into) as file:
        for number, (key, value) in enumerate(document.items()):
            file.write(b"%s\n%s:" % (b"," if number else b"{", msgspec.json.encode(key)))
            file.writelines(_joined(pattern, once, copies) if key == "traceEvents" else [bytes(value)])
        file.write(b"\n}\n")


def _joined(pattern: Pattern, once: Sequence[bytes], copies: int) -> Iterator[bytes]:
    yield b"[\n" + b"".join(event + b",\n" for event in once)
    for number in range(copies):
        yield pattern.copy(number) + (b",\n" if number + 1 < copies else b"\n]")


def _pattern(events: bytes, span_us: int) -> Pattern:
    # Every third piece is text, then the key, then the number after it.
    pieces = _NUMBER.split(events)
    keys, numbers = pieces[1::3], np.array(pieces[2::3], np.int64)
    texts = [piece.replace(b"%", b"%%") for piece in pieces[::3]]
    is_time = np.array([b"ts" in key for key in keys], bool)
    is_step = np.array([key == b"ProfilerStep#" for key in keys], bool)
    is_id = ~is_time & ~is_step & (numbers > 0)  # 0 says that there is none
    steps = np.where(is_time, span_us, 0)
    steps[is_id] = numbers[is_id].max(initial=0) + 1
    steps[is_step] = np.ptp(numbers[is_step]) + 1 if is_step.any() else 0
    text = b"".join(piece + key + b"%d" for piece, key in zip(texts, keys, strict=False))
    return Pattern(text + texts[-1], numbers, steps)


def _span_us(repeated: Sequence[_Head]) -> int:
    """From the first begin to the last end, in whole µs, so that decimals stay what they are."""
    return int(max(head.ts + head.dur for head in repeated) - min(head.ts for head in repeated)) + 1


def _stretched(event: bytes, head: _Head, longer_us: int) -> bytes:
    """An event that is there once; what ends with the recording ends later."""
    if head.cat != "Trace" and head.name != "Record Window End":
        return event
    whole = msgspec.json.decode(event)
    whole["dur" if head.cat == "Trace" else "ts"] += longer_us
    return msgspec.json.encode(whole)


def _text(source: Path) -> bytes:
    content = source.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def _opened(into: Path) -> IO[bytes]:
    return gzip.open(into, "wb", compresslevel=1) if into.suffix == ".gz" else into.open("wb")


# --- exports of Nsight Systems ------------------------------------------------------------------------------------

_TIMES = ("start", "end", "timestamp", "rawTimestamp")
_ABOUT_THE_MACHINE = re.compile("TARGET_INFO|META_DATA|ANALYSIS|DIAGNOSTIC|ENUM")
#: They have no time of their own, but the number of a sample that has one.
_OF_SAMPLES = "SAMPLING_CALLCHAINS"
#: The texts of ops, of which each has its number, as torch.autograd.profiler.emit_nvtx writes them.
_OP = "op_id = "
_OPS_A_COPY = 10_000_000


def grow_nsys(source: Path, into: Path, copies: int) -> None:
    shutil.copyfile(source, into)
    into.chmod(0o644)
    if copies == 1:
        return
    with closing(sqlite3.connect(into)) as connection:
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        tables = dict(_tables_of_events(connection))
        steps = _steps_of_a_copy(connection, tables)
        for table, columns in tables.items():
            values = ", ".join(_later(column, steps) for column in columns)
            names = ", ".join(_quoted(column) for column in columns)
            connection.execute(
                f"WITH RECURSIVE copy(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM copy WHERE k + 1 < {copies}) "
                f"INSERT INTO {table} ({names}) SELECT {values} FROM copy CROSS JOIN (SELECT * FROM {table})"
            )
        connection.commit()


def _tables_of_events(connection: sqlite3.Connection) -> Iterator[tuple[str, list[str]]]:
    """With their columns: every table whose rows have a time, except what is said of the machine."""
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")]
        has_time = set(columns) & set(_TIMES) and not _ABOUT_THE_MACHINE.match(table)
        if has_time or table == _OF_SAMPLES:
            yield _quoted(table), columns


def _steps_of_a_copy(connection: sqlite3.Connection, tables: dict[str, list[str]]) -> dict[str, int]:
    """What a copy adds, by column: to times, in ns, how long the pieces last; to numbers, one more than the highest."""

    def most(what: str, *columns: str) -> list[int]:
        asked = [f"SELECT {what} FROM {table}" for table, has in tables.items() if set(columns) <= set(has)]
        found = [connection.execute(query).fetchone()[0] for query in asked]
        return [value for value in found if value is not None]

    # Only what has an end: what is said of domains and threads may be minutes earlier.
    begin, end = min(most('min(start) FILTER (WHERE "end" > start)', "start", "end")), max(most('max("end")', "end"))
    highest = {column: max(most(f"max({column})", column), default=0) + 1 for column in ("correlationId", "id")}
    return dict.fromkeys(_TIMES, end - begin + 1) | highest


def _later(column: str, steps: Mapping[str, int]) -> str:
    """The SQL of a column's value in copy k."""
    if column == "correlationId":  # 0 says that there is none
        return f"CASE WHEN correlationId > 0 THEN correlationId + k * {steps[column]} ELSE correlationId END"
    if column == "text":
        number = f"substr(text, instr(text, '{_OP}') + {len(_OP)})"
        return (
            f"CASE WHEN instr(text, '{_OP}') THEN substr(text, 1, instr(text, '{_OP}') + {len(_OP) - 1}) "
            f"|| (CAST({number} AS INTEGER) + k * {_OPS_A_COPY}) || ltrim({number}, '0123456789') ELSE text END"
        )
    return f"{_quoted(column)} + k * {steps[column]}" if column in steps else _quoted(column)


def _quoted(column: str) -> str:
    return f'"{column}"'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("into", type=Path)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--copies", type=int)
    size.add_argument("--mb", type=float, help="megabytes, uncompressed")
    given = parser.parse_args()
    copies = given.copies or copies_for(given.source, given.mb)
    grow(given.source, given.into, copies)
    print(f"{given.into}: {given.into.stat().st_size / 1e6:,.1f} MB, {copies} times {given.source.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
