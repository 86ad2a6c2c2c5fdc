"""How does a tool's printed text become rows? Lines without escape codes, and literal rows as a signal's frame."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, cast

import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.columns import DTYPES
from perfdoctor.model.timeline import SIGNALS, UNKNOWN, Frame, Source, Text, Timeline
from perfdoctor.patterns import regex
from perfdoctor.readers.kineto.inflate import MAGIC, TooLongError, check_ratio

#: Colours and underlines (nvidia-smi underlines its header even in a file), and what else moves a terminal's cursor.
_ESCAPES = regex(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
#: No tool prints so long a number, and Python reads none of 4,300 digits.
_ENDLESS = regex(r"(\d{400})\d+")
_JSON = regex(rb"\s*(\{|\[\s*[{\[\"\]])")
#: These tools print no longer lines; the rest of a longer one is ignored.
LONGEST_LINE = 20_000


def plain(line: str) -> str:
    """The line without escape codes, control characters and endless numbers, cut at LONGEST_LINE."""
    return _ENDLESS.sub(r"\1", _ESCAPES.sub("", line[:LONGEST_LINE]))


def is_json(head: bytes) -> bool:
    """Do these first bytes begin JSON? `[rank0]: …`, as launchers mark lines, is none."""
    return _JSON.match(head) is not None


#: What is longer is no line of a table or a log, and is read in parts.
_LONGEST_LINE = 1 << 20


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file, also of a gzipped one; bytes that are no UTF-8 are shown as the replacement sign.

    PerfdoctorError where the file cannot be read, or its text is so much longer than it that no tool wrote it.
    """
    try:
        with path.open("rb") as raw:
            zipped = raw.read(len(MAGIC)) == MAGIC
            raw.seek(0)
            inner = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if zipped else raw
            text, length = io.TextIOWrapper(inner, encoding="utf-8-sig", errors="replace"), 0
            while line := text.readline(_LONGEST_LINE):
                length += len(line)
                check_ratio(length, raw.tell())
                yield plain(line).rstrip()
    except TooLongError as error:
        raise PerfdoctorError(f"{path.name} cannot be read: {error.what}", do=error.do) from error
    except (OSError, EOFError, zlib.error) as error:
        what = getattr(error, "strerror", None) or error
        raise PerfdoctorError(f"{path.name} cannot be read: {what}", do="Check the file.") from error


def head_lines(head: bytes, most: int = 400) -> list[str]:
    """The first lines that are not empty, `most` at most, of the first bytes of a file."""
    return _head_lines(head)[:most]


@lru_cache(maxsize=4)
def _head_lines(head: bytes) -> list[str]:
    """The first 400 of them, kept: several formats are recognised by the same ones."""
    every = (plain(each).strip() for each in head.decode("utf-8-sig", "replace").splitlines())
    return list(islice(filter(None, every), 400))


def frame(signal: str, rows: Iterable[Mapping[str, object]]) -> Frame:
    """Literal rows as a sorted frame; values that a row leaves out are unknown, times are 0."""
    kept: Sequence[Mapping[str, object]] = list(rows)
    columns: dict[str, object] = {}
    for column, kind in SIGNALS[signal].columns.items():
        if kind is str:
            columns[column] = Text.of(str(row.get(column, "")) for row in kept)
        else:
            default = 0 if column in ("start_ns", "end_ns") else np.nan if kind is float else UNKNOWN
            columns[column] = np.array([row.get(column, default) for row in kept], dtype=DTYPES[kind])
    return Frame(columns).sorted()  # type: ignore[arg-type]


def timeline(signal: str, rows: Frame, kind: str, file: str, notes: Iterable[str] = ()) -> Timeline:
    """The Timeline of a file that holds this signal alone. `kind`: what the file is, as `Source` has it."""
    return Timeline.build({signal: rows}, {signal}, sources=[Source(kind, file, "")], notes=list(notes))
