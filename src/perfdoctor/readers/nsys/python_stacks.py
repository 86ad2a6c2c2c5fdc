"""Which stacks of Python did Nsight Systems sample (`--python-sampling=true`)?

A sample is an NVTX mark in the domain `Python Backtrace`; its stack is the mark's payload, which only exports with
`--include-blobs` hold: four 32-bit numbers, the third of which is how many frames follow, then for each frame,
innermost first, the ids of function and file in StringIds and the line, 64 bits each, the upper half of the last one
undefined. (Read off recordings of 2023.4.4, in which names are escaped as in XML.) In front of it there may be the
header of `nccl_payloads`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import unescape

import numpy as np

from perfdoctor.model.timeline import UNKNOWN, Frame
from perfdoctor.patterns import regex
from perfdoctor.readers.nsys.frames import Ranks
from perfdoctor.readers.nsys.tables import NVTX, UNREADABLE, Database, ExportTables
from perfdoctor.readers.stack_files import StackRow, stack_samples

_MARK, _DOMAIN = 34, 75
_NAME = "Python Backtrace"
_ASKED_FOR = "name LIKE '%PYTHON_BACKTRACE%' AND lower(value) = 'true'"
_PAYLOAD_HEADER_BYTES, _HEAD_BYTES, _FRAME_BYTES = 32, 16, 24
#: A wrong id must not show another string of the report, which may be of the environment.
_FILE = regex(r"^<[\w .]+>$|\.pyx?$")
_FUNCTION = regex(r"^[\w.<>]+$")

_Ids = tuple[tuple[int, int, int], ...]


def python_stacks(tables: ExportTables, ranks: Ranks) -> Frame:
    """Rows of `stack_samples`, of processes that are ranks; where stacks were sampled and are lost, a note."""
    try:
        marks = _marks(tables.database)
        if not marks:
            return Frame.empty("stack_samples")
        stacks = {blob: _frames(blob) for _, _, blob in marks}
        ids = {each for stack in stacks.values() for frame in stack for each in frame[:2]}
        names = tables.database.names(sorted(ids))
    except UNREADABLE:
        return Frame.empty("stack_samples")  # the reader of ranges writes the note
    if not any(stacks.values()):
        tables.notes.append(
            "Nsight Systems sampled stacks of Python, but the export does not hold them: pass the .nsys-rep itself,"
            " with an nsys that knows `nsys export --include-blobs`."
        )
        return Frame.empty("stack_samples")
    return _samples([(start, thread, stacks[blob]) for start, thread, blob in marks], names, ranks)


def names_in(database: Database) -> set[int]:
    """The numbers of the strings that the sampled stacks name."""
    try:
        blobs = {blob for _, _, blob in _marks(database)}
    except UNREADABLE:
        return set()
    return {each for blob in blobs for frame in _frames(blob) for each in frame[:2]}


def _marks(database: Database) -> list[tuple[int, int, bytes]]:
    """Start, thread and payload of each sample, in the order of time."""
    columns = database.columns_of(NVTX)
    # The table of marks may be large; folders of tables do not hold what was asked for.
    asked_for = "META_DATA_CAPTURE" not in database.tables or database.rows("META_DATA_CAPTURE", "1", _ASKED_FOR)
    if not asked_for or not {"start", "globalTid", "eventType", "domainId", "text"} <= columns:
        return []
    named = f"text = '{_NAME}'"
    if "textId" in columns:
        ids = ", ".join(str(row[0]) for row in database.rows("StringIds", "id", f"value = '{_NAME}'"))
        named = f"({named} OR textId IN ({ids}))"
    numbers = [row[0] for row in database.rows(NVTX, "domainId", f"eventType = {_DOMAIN} AND {named}")]
    listed = ", ".join(str(number) for number in numbers if isinstance(number, int))
    blob = '"binaryData"' if "binaryData" in columns else "NULL"
    found = database.rows(NVTX, f'"start", globalTid, {blob}', f"eventType = {_MARK} AND domainId IN ({listed})")
    marks = [
        (start, thread, raw if isinstance(raw, bytes) else b"")
        for start, thread, raw in found
        if isinstance(start, int) and isinstance(thread, int)
    ]
    return sorted(marks, key=lambda mark: mark[0])


def _frames(blob: bytes) -> _Ids:
    """Function, file and line of each frame, outermost first; none where the bytes are of another form."""
    for begin in (0, _PAYLOAD_HEADER_BYTES):
        raw = blob[begin:]
        count, rest = divmod(len(raw) - _HEAD_BYTES, _FRAME_BYTES)
        if not rest and count > 0 and count == int.from_bytes(raw[8:12], "little"):
            numbers = np.frombuffer(raw, "<u8", offset=_HEAD_BYTES).reshape(count, 3)[::-1]
            return tuple((f, at, line & 0xFFFF_FFFF) for f, at, line in numbers.tolist() if max(f, at) < 1 << 62)
    return ()


def _samples(marks: Sequence[tuple[int, int, _Ids]], names: Mapping[int, str], ranks: Ranks) -> Frame:
    """Rows of `stack_samples`. A mark lasts until the next one of its thread, at most for their usual distance."""
    starts, threads = (np.array([mark[place] for mark in marks], np.int64) for place in (0, 1))
    ends = np.zeros_like(starts)
    for thread in np.unique(threads).tolist():
        own = np.flatnonzero(threads == thread)
        apart = np.diff(starts[own])
        usual = max(int(np.median(apart)) if apart.size else 0, 1)
        ends[own] = starts[own] + np.minimum(np.append(apart, usual), usual)
    rows = [
        StackRow((thread >> 24) & 0xFFFFFF, thread & 0xFFFFFF, "", _named(frames, names), 1, start, end)
        for (start, thread, frames), end in zip(marks, ends.tolist(), strict=True)
    ]
    found = stack_samples(rows)
    rank = ranks.ranks(found["training"])
    found = found.with_columns(rank=rank, is_on_clock=np.ones(len(found), dtype=bool))
    return found.take(rank != UNKNOWN)


def _named(frames: _Ids, names: Mapping[int, str]) -> tuple[tuple[str, str, int], ...]:
    """Function, file and line of the frames that look like some."""
    known = ((unescape(names.get(f, "")), unescape(names.get(file, "")), line) for f, file, line in frames)
    return tuple(each for each in known if _FUNCTION.search(each[0]) and _FILE.search(each[1]))
