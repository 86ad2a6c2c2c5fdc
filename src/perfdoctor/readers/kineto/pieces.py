"""Which pieces of a trace's text are there to be read by several processes?

They begin with the second of the grid, and leave out the last: it is read by who knows where the text ends.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, BinaryIO, cast

from perfdoctor.readers.kineto import repair
from perfdoctor.readers.kineto.parts import PieceJob, piece_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from perfdoctor.readers.kineto.window import TraceText


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
