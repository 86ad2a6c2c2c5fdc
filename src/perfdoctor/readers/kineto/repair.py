"""Where in a trace's text are its events, even if the text is damaged or cut off?

The text is decoded in batches of about half a megabyte (what fits the processor's caches decodes fastest), so that
memory holds the text and the columns but never all events. A batch that does not decode is repaired as a whole; if it
still fails, it is halved until the damaged event is alone.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from perfdoctor.late import regex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Event = TypeVar("Event")
Buffer = bytes | bytearray

_BATCH_BYTES = 1 << 19
# One event's end and the next one's start. Inside a string this cannot stand: its first quote would end the string.
_SEPARATOR = regex(rb'\}\s*,\s*(?=\{\s*"[^"\\]*"\s*:)')
_ARRAY = regex(rb'"traceEvents"\s*:\s*\[')
_CLOSING = regex(rb'\}\s*\]\s*(,\s*"|\}|$)')
_BETWEEN = regex(rb"[\s,]*")
_WINDOWS = (1 << 16, 1 << 24)  # nearly every event fits the first

_NOT_A_NUMBER = regex(rb'(?<=")(\s*:\s*)[-+]?(?:nan|inf(?:inity)?|n/a)(?=\s*[,}\]])', re.IGNORECASE)
_ESCAPE = regex(
    rb'\\(?:(?P<good>["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    rb"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2}))?"
)
_CONTROL_TO_SPACE = bytes(max(byte, 32) for byte in range(256))
_QUOTE = regex(r'\\.|"', re.DOTALL)
_COLONS = (":", ": ", ":\t", ":\n")
_BEHIND_VALUE = regex(r'\s*(?:\}\s*(?:[,}\]]|$)|,\s*"[^"\\]*"\s*:)')
_BEHIND_KEY = regex(r'\s*(?:[:}\]]|,\s*(?:["{\[\d-]|null|true|false))')
_BLANK = "\0 \t\r\n\ufeff\u00ef\u00bb\u00bf"  # also a byte order mark read as Latin-1
_JSON = json.JSONDecoder(strict=False)
_FAILURES = (ValueError, RecursionError)  # of msgspec and of json alike; UnicodeDecodeError is a ValueError


def decompressed(data: bytes) -> tuple[Buffer, bool]:
    """The text of a gzip file, and whether it is whole. Data that is not gzip is returned as it is."""
    if data[:2] != b"\x1f\x8b":
        return data, True
    member = zlib.decompressobj(wbits=31)
    try:  # nearly every file is one whole member, and one call for it is a third faster
        inflated = member.decompress(data)
    except zlib.error:
        inflated = b""
    if member.eof and member.unused_data[:2] != b"\x1f\x8b":
        return inflated, True
    text = bytearray()
    whole = True
    while whole and data[:2] == b"\x1f\x8b":  # a file may hold several members
        whole, data = _inflate(data, text)
    return text, whole


def _inflate(data: bytes, text: bytearray) -> tuple[bool, bytes]:
    member = zlib.decompressobj(wbits=31)
    for start in range(0, len(data), 1 << 16):
        before = member.copy()
        piece = data[start : start + (1 << 16)]
        try:
            text += member.decompress(piece)
        except zlib.error:
            _salvage(before, piece, text)
            return False, b""
        if member.eof:
            return True, member.unused_data + data[start + (1 << 16) :]
    return False, b""


def _salvage(member: zlib._Decompress, piece: bytes, text: bytearray) -> None:
    """Add all text before the damaged byte: a call that fails returns nothing of what it had inflated."""
    try:
        for start in range(len(piece)):
            text += member.decompress(piece[start : start + 1])
    except zlib.error:
        return


def array_start(text: Buffer) -> tuple[int, int] | None:
    """Where the key of the array of events starts, and where its first event; None if there is no such array."""
    found = _ARRAY.search(text)
    if found:
        return found.start(), found.end()
    bare = re.match(rb"(?:\xef\xbb\xbf)?\s*\[", text)
    return (bare.start(), bare.end()) if bare else None


class EventArray(Generic[Event]):
    """Iterates over the events behind `start`, in batches.

    Afterwards `count` is how many events were yielded, `repaired` how many values were repaired, `skipped` how many
    events were lost. `end` is the position behind the array's bracket; None if the text breaks off, at `position`.
    """

    def __init__(
        self,
        text: Buffer,
        start: int,
        event: type[Event],
        exact: type[Event],
        take: Callable[[bytes], int | None] = lambda _: None,
    ) -> None:
        self.text = text
        self.position = start
        self.end: int | None = None
        self.count = self.repaired = self.skipped = 0
        self._view = memoryview(text)
        self._decoder = msgspec.json.Decoder(list[event])  # type: ignore[valid-type]
        self._exact = msgspec.json.Decoder(list[exact])  # type: ignore[valid-type]
        self._take = take
        self._last = b"[]"

    def __iter__(self) -> Iterator[list[Event]]:
        self._after(self.position)
        while self.end is None and self.position < len(self.text):
            mark = _SEPARATOR.search(self.text, self.position + _BATCH_BYTES)
            stop, following = (mark.start() + 1, mark.end()) if mark else (len(self.text),) * 2
            for events in self._batch(stop):
                self.count += len(events)
                yield events
            self.position = max(self.position, following)

    def again_exactly(self) -> list[Event]:
        """The last batch once more, with its times as they are written."""
        return self._exact.decode(self._last)

    def _batch(self, stop: int) -> Iterator[list[Event]]:
        taken = self._take(b"".join((b"[", self._view[self.position : stop], b"]")))
        if taken is not None:
            self.count += taken
            return
        events = self._decode(self.position, stop)
        if events is not None:
            yield events
            return
        is_repairable = _repair(self._view[self.position : stop].tobytes())[1] > 0
        marks = list(_SEPARATOR.finditer(self.text, self.position, stop))
        starts = [self.position, *(mark.end() for mark in marks)]
        yield from self._halves(starts, [*(mark.start() + 1 for mark in marks), stop], repair=is_repairable)

    def _halves(self, starts: list[int], stops: list[int], *, repair: bool) -> Iterator[list[Event]]:
        """The events between the first start and the last stop, without those that an earlier event has covered."""
        if self.end is not None or stops[-1] <= self.position:
            return
        middle = len(starts) // 2
        if middle == 0:
            yield from self._alone(max(starts[0], self.position), stops[0])
            return
        for part in (slice(None, middle), slice(middle, None)):
            if self.end is None and stops[part][-1] > self.position:
                events = self._decode(max(starts[part][0], self.position), stops[part][-1], repair=repair)
                if events is None:
                    yield from self._halves(starts[part], stops[part], repair=repair)
                else:
                    yield events

    def _decode(self, start: int, stop: int, *, repair: bool = True) -> list[Event] | None:
        batch = b"".join((b"[", self._view[start:stop], b"]"))
        try:
            events = self._decoder.decode(batch)
        except _FAILURES:
            if not repair:
                return None
            batch, repaired = _repair(batch)
            try:
                events = self._decoder.decode(batch)
            except _FAILURES:
                return None
            self.repaired += max(repaired, 1)
        self._last = batch
        return events

    def _alone(self, start: int, stop: int) -> Iterator[list[Event]]:
        """The event at `start`, which does not decode up to `stop`: it ends elsewhere, or is damaged."""
        length = self._length(start)
        if length is not None:
            events = self._decode(start, start + length)
            self._after(start + length)
        else:
            closing = _CLOSING.search(self.text, start) if stop == len(self.text) else None
            events = self._requoted(start, closing.start() + 1 if closing else stop)
            if events is None and stop == len(self.text) and not closing:
                self.position = stop  # cut off within this event
                return
            self._after(closing.start() + 1 if closing else stop)
        if events is None:
            self.skipped += 1
        else:
            yield events

    def _length(self, start: int) -> int | None:
        for window in _WINDOWS:
            # Latin-1 keeps one character a byte, so that the length counts bytes.
            text = self._view[start : start + window].tobytes().decode("latin-1")
            try:
                return _JSON.raw_decode(text)[1]
            except json.JSONDecodeError as error:
                if error.pos < len(text) - 16 and not error.msg.startswith("Unterminated"):
                    return None  # damaged: more text will not help
            except _FAILURES:
                return None
        return None

    def _requoted(self, start: int, stop: int) -> list[Event] | None:
        event = _requote(_repair(self._view[start:stop].tobytes())[0].decode("utf-8", "replace"))
        self._last = b"[" + event.encode() + b"]"
        try:
            events = self._decoder.decode(self._last)
        except _FAILURES:
            return None
        self.repaired += 1
        return events

    def _after(self, stop: int) -> None:
        """Move behind an event that ends at `stop`: to the next event, or to the end of the array."""
        between = _BETWEEN.match(self.text, stop)
        self.position = between.end() if between else stop
        sign = bytes(self._view[self.position : self.position + 1])
        if sign == b"]":
            self.end = self.position + 1
        elif sign not in (b"{", b""):
            mark = _SEPARATOR.search(self.text, self.position)
            self.skipped += 1
            self.position = mark.end() if mark else len(self.text)


def _repair(batch: bytes) -> tuple[bytes, int]:
    """The text without control characters, bare NaN, wrong escapes and bytes that are not UTF-8, and how many."""
    batch = batch.translate(_CONTROL_TO_SPACE)
    batch, repaired = _NOT_A_NUMBER.subn(rb"\1null", batch)
    wrong = 0

    def escape(found: re.Match[bytes]) -> bytes:
        nonlocal wrong
        if found["good"]:
            return found[0]
        wrong += 1
        return rb"\ufffd" if found["half"] else rb"\\"

    batch = _ESCAPE.sub(escape, batch)
    try:
        batch.decode()
    except UnicodeDecodeError:
        text = batch.decode("utf-8", "replace")
        repaired += len(re.findall("\ufffd+", text))
        batch = text.encode()
    return batch, repaired + wrong


def _requote(text: str) -> str:
    """The text with quotes inside strings escaped: a quote ends a string only where valid JSON follows."""
    parts, done, opened = [], 0, None
    for found in _QUOTE.finditer(text):
        if found[0] != '"':
            continue
        if opened is None:
            opened = found.start()
        elif (_BEHIND_VALUE if text[:opened].endswith(_COLONS) else _BEHIND_KEY).match(text, found.end()):
            opened = None
        else:
            parts += [text[done : found.start()], "\\"]
            done = found.start()
    return "".join([*parts, text[done:]])


def is_whole(before: bytes, behind: bytes) -> bool:
    """Do the texts before and behind the events form one JSON object, with nothing but blanks behind it?"""
    text = (before + b'"":[]' + behind).decode("latin-1").strip(_BLANK)
    try:
        return _JSON.raw_decode(text)[1] == len(text)
    except _FAILURES:
        return False


def member(before: bytes, behind: bytes, key: str) -> object:
    """A member of the object, which stands before or behind the events; None if it is missing or cut off."""
    for text in (before, behind):
        for found in re.finditer(rb'"' + key.encode() + rb'"\s*:\s*', text):
            rest = text[found.end() :].decode("utf-8", "replace")
            try:
                value, stop = _JSON.raw_decode(rest)
            except _FAILURES:
                continue
            if re.match(r"\s*[,}]", rest[stop:]):  # otherwise the text was cut off, for instance within a number
                return value
    return None
