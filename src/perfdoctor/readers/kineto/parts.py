"""How is a piece of a trace's text read by whom does not know what stands before it?

A piece begins at a line of the batches' grid; its first event is the first one behind the first separator there. That
this is an event's begin is proven when the piece before has been read to its end: it must end exactly there.
"""

from __future__ import annotations

from io import BytesIO
from typing import BinaryIO, cast

import msgspec

from perfdoctor.readers.kineto import repair
from perfdoctor.readers.kineto.events import Columns, TracePart
from perfdoctor.readers.kineto.window import TraceText, Window

#: A piece in batches: large enough that sending its rows costs little, small enough that all processes end together.
PIECE_BATCHES = 8


def piece_bytes() -> int:
    return PIECE_BATCHES * repair.BATCH_BYTES


class PieceJob(msgspec.Struct, array_like=True):
    """One piece: its first event begins behind `first`, its last one ends behind `until`; the grid begins at `begin`.

    Positions count from the text's begin. `text`: the text from `first` on, with what is spare; None: it is in the
    file at `path`.
    """

    begin: int
    first: int
    until: int
    path: str = ""
    text: memoryview | None = None


class _EndOfPieceError(Exception):
    """More of the text is needed than was given."""


class _Piece(BytesIO):
    """A part of a text, whose end is not the text's."""

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = super().readinto(buffer)
        if not size:
            raise _EndOfPieceError
        return size


class PartReader:
    """Reads pieces of one trace, one after another."""

    def __init__(self) -> None:
        self._columns = Columns()
        self._file: BinaryIO | None = None

    def read(self, job: PieceJob) -> TracePart:
        try:
            return self._part(job)
        except _EndOfPieceError:
            return TracePart()

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _part(self, job: PieceJob) -> TracePart:
        text = Window(self._source(job), job.first, job.until - job.first + repair.SPARE_BYTES)
        text.fill()
        start = repair.first_event(text)
        if start is None:
            return TracePart()
        begins = text.origin + start
        array = repair.EventArray(text, start, self._columns, job.begin)
        array.read(job.until)
        part = self._columns.take()
        part.is_sound = array.end is None
        part.start, part.stop = begins, text.origin + array.position
        part.count, part.repaired, part.skipped = array.count, array.repaired, array.skipped
        return part

    def _source(self, job: PieceJob) -> TraceText:
        if job.text is not None:
            return _Piece(job.text)
        if self._file is None:
            self._file = open(job.path, "rb", buffering=0)  # noqa: PTH123, SIM115 closed with the reader
        self._file.seek(job.first)
        return cast("TraceText", self._file)
