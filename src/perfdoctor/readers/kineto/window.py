"""Which part of a text is in memory? A window that moves forward, and grows where one event needs it.

Positions count from the window's first byte, but for `origin`, where that byte stands in the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from perfdoctor.readers.kineto.inflate import TooLongError

if TYPE_CHECKING:
    import re

BYTES = 1 << 22
#: An event has some MB at most, and what stands behind all events (metadata) some more. Objects take 30 times the
#: memory of their text, so that a longer one is not even tried.
MOST_BYTES, MOST_BEHIND_BYTES = 1 << 25, 1 << 28
#: Behind the text one byte is free, in which a decoder's closing bracket is put.
_SPARE = 1


class TraceText(Protocol):
    """A text that is read once, from its begin."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


class NeedsMoreError(Exception):
    """What was asked cannot be answered before more of the text is in the window."""


class Window:
    """`data[:length]` is in memory; `is_last`: nothing follows in the text."""

    def __init__(self, source: TraceText, origin: int = 0, size: int = 0) -> None:
        self._source = source
        self.origin = origin
        self.data = bytearray((size or BYTES) + _SPARE)
        self.length = 0
        self.is_last = False

    def fill(self, length: int = 0) -> None:
        """Read on until that many bytes are in the window, or all; at least until it is full."""
        length = max(length, len(self.data) - _SPARE)
        if length + _SPARE > len(self.data):
            larger = bytearray(max(length, 2 * len(self.data)) + _SPARE)  # the old one may still have readers
            larger[: self.length] = memoryview(self.data)[: self.length]
            self.data = larger
        while self.length < length and not self.is_last:
            read = self._source.readinto(memoryview(self.data)[self.length : -_SPARE])
            self.length += read or 0
            self.is_last = not read

    def grow(self, most: int = MOST_BYTES) -> None:
        """Double the window. TooLongError if it holds `most` bytes already."""
        if self.length > most:
            raise TooLongError(
                f"an event, or what stands beside the events, is longer than {most >> 20} MB",
                do="No profiler writes that: record again, or leave the file out.",
            )
        self.fill(2 * max(self.length, 1))

    def forget(self, before: int) -> None:
        """Drop what stands before this position, which is 0 then."""
        kept = self.data[before : self.length]
        self.data[: len(kept)] = kept
        self.length -= before
        self.origin += before

    def search(self, pattern: re.Pattern[bytes], start: int) -> re.Match[bytes] | None:
        """Where it occurs at or behind `start`; None: nowhere in the text. NeedsMoreError: not in the window yet."""
        found = pattern.search(self.data, start, self.length)
        if not found and not self.is_last:
            raise NeedsMoreError
        return found

    def rest(self, start: int) -> bytes:
        """All of the text from this position on."""
        while not self.is_last:
            self.grow(MOST_BEHIND_BYTES)
        return bytes(memoryview(self.data)[start : self.length])

    def between(self, start: int, stop: int) -> bytes:
        return bytes(memoryview(self.data)[start : min(stop, self.length)])
