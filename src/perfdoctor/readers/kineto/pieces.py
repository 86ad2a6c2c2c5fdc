"""How do several processes read a trace's text in pieces: which pieces are there, and how is one read by itself?

A piece begins at a line of the batches' grid; its first event is the first one behind the first separator there. That
this is an event's begin is proven when the piece before has been read to its end: it must end exactly there. Pieces
begin with the second of the grid, and leave out the last: it is read by who knows where the text ends.
"""

from __future__ import annotations

from collections import deque
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec

from perfdoctor.readers.kineto import repair
from perfdoctor.readers.kineto.events import Columns, TracePart
from perfdoctor.readers.kineto.window import TraceText, Window

if TYPE_CHECKING:
    from pathlib import Path

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
        """What was read of one piece; an unsound part where it cannot be read by itself."""
        text = Window(self._source(job), job.first, job.until - job.first + repair.SPARE_BYTES)
        try:
            text.fill()
            start = repair.first_event(text)
            if start is None:
                return TracePart()
            begins = text.origin + start
            array = repair.EventArray(text, start, self._columns, job.begin)
            array.read(job.until)
        except _EndOfPieceError:
            return TracePart()
        part = self._columns.take()
        part.is_sound = array.end is None
        part.start, part.stop = begins, text.origin + array.position
        part.count, part.repaired, part.skipped = array.count, array.repaired, array.skipped
        return part

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _source(self, job: PieceJob) -> TraceText:
        if job.text is not None:
            return _Piece(job.text)
        if self._file is None:
            self._file = open(job.path, "rb", buffering=0)  # noqa: PTH123, SIM115 closed with the reader
        self._file.seek(job.first)
        return cast("TraceText", self._file)


# --- which pieces are there? ---


class OfFile:
    """Pieces of a plain file: every process reads its own."""

    #: No process is further ahead of the rows that are joined than so many pieces for each process: of these only rows
    #: are held, which take a twelfth of the text.
    AHEAD = 12

    def __init__(self, path: Path, stream: TraceText, begin: int) -> None:
        self._path = str(path.absolute())
        self._stream = cast("BinaryIO", stream)
        self._begin, self._next, self._length = begin, begin + piece_bytes(), path.stat().st_size

    def next(self) -> PieceJob | None:
        """The next piece; None if there is none any more."""
        first, until = self._next, self._next + piece_bytes()
        if until + repair.SPARE_BYTES >= self._length:
            return None
        self._next = until
        return PieceJob(self._begin, first, until, self._path)

    def forget(self) -> None:
        """The first piece that is not forgotten yet has been read for good."""

    def rest(self, position: int) -> tuple[TraceText, int]:
        """The text behind what is forgotten, with its next event at `position`, and where that text begins."""
        self._stream.seek(position - 1)
        return cast("TraceText", self._stream), position - 1


class OfStream:
    """As `OfFile`, of a text that can only be read from its begin: pieces are kept until they are read for good."""

    AHEAD = 3

    def __init__(self, source: TraceText, read: bytes, begin: int) -> None:
        """`read`: the text of the source that is read already, from the first of the pieces on."""
        self._source = source
        self._begin, self._first = begin, begin + piece_bytes()
        self._text = bytearray(read)  # from `_first` on
        self._kept: deque[bytes] = deque()

    def next(self) -> PieceJob | None:
        size = piece_bytes()
        if not self._fill(size + repair.SPARE_BYTES + 1):
            return None
        text = bytes(memoryview(self._text)[: size + repair.SPARE_BYTES])
        job = PieceJob(self._begin, self._first, self._first + size, text=memoryview(text))
        self._kept.append(text)
        del self._text[:size]
        self._first += size
        return job

    def _fill(self, length: int) -> bool:
        had = len(self._text)
        if had < length:
            self._text.extend(bytes(length - had))
            view = memoryview(self._text)
            while had < length and (size := self._source.readinto(view[had:])):
                had += size
            view.release()
            del self._text[had:]
        return had >= length

    def forget(self) -> None:
        self._kept.popleft()

    def rest(self, position: int) -> tuple[TraceText, int]:
        del position
        kept = [memoryview(text)[: piece_bytes()] for text in self._kept]
        return _Chain([*kept, memoryview(self._text)], self._source), self._first - len(kept) * piece_bytes()


class _Chain:
    """Some texts, and then what a source still has."""

    def __init__(self, texts: list[memoryview], source: TraceText) -> None:
        self._texts = deque(text for text in texts if text)
        self._source = source

    def readinto(self, buffer: memoryview) -> int:
        if not self._texts:
            return self._source.readinto(buffer) or 0
        text = self._texts.popleft()
        size = min(len(text), len(buffer))
        buffer[:size] = text[:size]
        if size < len(text):
            self._texts.appendleft(text[size:])
        return size
