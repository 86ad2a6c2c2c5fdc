"""What is the text of a gzip file, piece by piece, also if it is damaged or cut off?

A file may hold several members; what is no member behind the last one is not read. ISA-L inflates three times as fast
as zlib where its package is installed; both give the same text.
"""

from __future__ import annotations

import contextlib
import zlib
from io import BytesIO
from typing import Any, BinaryIO

from perfdoctor.errors import PerfdoctorError

try:
    from isal import isal_zlib

    _fast: Any = isal_zlib
except ImportError:  # there is none for this machine
    _fast = zlib

MAGIC = b"\x1f\x8b"
_PIECE_BYTES = 1 << 16
#: A text may be so many times as long as its file: traces are 10 to 50 times, blanks alone a thousand times as long.
_MOST_RATIO, _FREE_BYTES = 200, 1 << 28


class TooLongError(PerfdoctorError):
    """A text that no profiler writes, and that would take all memory."""


def check_ratio(text_bytes: int, file_bytes: int) -> None:
    """Raises TooLongError where no tool writes so long a text into so many bytes of a file."""
    if text_bytes > _FREE_BYTES + _MOST_RATIO * file_bytes:
        raise TooLongError(
            f"it would be more than {_MOST_RATIO} times as long when it is decompressed",
            do="No profiler writes that. If the file is trusted, decompress it first: gunzip FILE",
        )


class Inflated:
    """The text of a gzip stream, which can be sought. `is_whole` is False once it is known to be damaged or cut off."""

    def __init__(self, stream: BinaryIO) -> None:
        self.is_whole = True
        self._stream = stream
        self._ready = memoryview(b"")
        self._pending = b""
        self._member: Any = None
        self._start = self._given = 0  # of the member: where it begins in the stream, and how much text it gave
        self._has_ended = False
        self._all = 0

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer as far as the text goes; 0 only at its end."""
        filled = 0
        while filled < len(buffer) and (self._ready or self._inflate()):
            size = min(len(buffer) - filled, len(self._ready))
            buffer[filled : filled + size] = self._ready[:size]
            self._ready = self._ready[size:]
            filled += size
        return filled

    def _inflate(self) -> bool:
        """Make more text ready. False at the end."""
        while not self._has_ended and not self._ready:
            piece = self._pending or self._stream.read(_PIECE_BYTES)
            self._pending = b""
            if self._member is None:
                self._begin(piece)
            elif not piece:
                self._salvage()
            else:
                self._feed(piece)
        return bool(self._ready)

    def _begin(self, piece: bytes) -> None:
        """Begin the next member, if there is one behind the last."""
        if len(piece) < len(MAGIC):
            piece += self._stream.read(_PIECE_BYTES)
        if piece[: len(MAGIC)] != MAGIC:
            self._has_ended = True
            return
        self._start = self._stream.tell() - len(piece)
        self._member, self._given, self._pending = _fast.decompressobj(wbits=31), 0, piece

    def _feed(self, piece: bytes) -> None:
        try:
            text = self._member.decompress(piece)
        except (zlib.error, _fast.error):
            self._salvage()
            return
        self._give(text)
        if self._member.eof:
            self._pending = self._member.unused_data
            self._member = None

    def _give(self, text: bytes) -> None:
        self._ready = memoryview(text)
        self._given += len(text)
        self._all += len(text)
        check_ratio(self._all, self._stream.tell())

    def _salvage(self) -> None:
        """Make all text before the damaged byte ready: a call that fails returns nothing of what it had inflated."""
        self.is_whole, self._has_ended = False, True
        self._stream.seek(self._start)
        member, passed, piece = zlib.decompressobj(wbits=31), 0, b""
        rest = bytearray()

        def keep(text: bytes) -> None:
            nonlocal passed
            rest.extend(text[max(self._given - passed, 0) :])
            passed += len(text)

        while True:
            before = member.copy()
            piece = self._stream.read(_PIECE_BYTES)
            try:
                keep(member.decompress(piece))
            except zlib.error:
                with contextlib.suppress(zlib.error):
                    for start in range(len(piece)):
                        keep(before.decompress(piece[start : start + 1]))
                break
            if not piece or member.eof:
                break
        self._give(bytes(rest))


def decompressed(data: bytes) -> tuple[bytes, bool]:
    """The text of a gzip file, and whether it is whole. Data that is not gzip is returned as it is."""
    if data[: len(MAGIC)] != MAGIC:
        return data, True
    stream = Inflated(BytesIO(data))
    pieces = []
    buffer = memoryview(bytearray(1 << 20))
    while size := stream.readinto(buffer):
        pieces.append(bytes(buffer[:size]))
    return b"".join(pieces), stream.is_whole


def whole_text(data: bytes) -> bytes:
    """The text of a gzip file. Data that is not gzip is returned as it is. Raises EOFError where it is damaged."""
    text, is_whole = decompressed(data)
    if not is_whole:
        raise EOFError("it is damaged, or breaks off")
    return text
