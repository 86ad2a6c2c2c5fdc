"""Where in a trace's text are its events, even if the text is damaged or cut off?

The text is decoded in batches of about half a megabyte (what fits the processor's caches decodes fastest), so that
memory holds a window of the text and the columns, never all events. A batch that does not decode is repaired as a
whole; if it still fails, it is halved until the damaged event is alone.

A batch ends with the first event that ends behind the next line of a grid, which is drawn through the text every half
megabyte from the array's start. So what a batch holds does not depend on who reads it: several processes read the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from perfdoctor.patterns import regex
from perfdoctor.readers.kineto.window import NeedsMoreError, Window

if TYPE_CHECKING:
    from perfdoctor.readers.kineto.events import Columns, Tips

Result = TypeVar("Result")

BATCH_BYTES = 1 << 19
# One event's end and the next one's start. Inside a string this cannot stand: its first quote would end the string.
_SEPARATOR = regex(rb'\}\s*,\s*(?=\{\s*"[^"\\]*"\s*:)')
_ARRAY = regex(rb'"traceEvents"\s*:\s*\[')
_BARE = regex(rb"(?:\xef\xbb\xbf)?\s*\[")
_CLOSING = regex(rb'\}\s*\]\s*(,\s*"|\}|$)')
_BETWEEN = regex(rb"[\s,]*")
#: Behind a batch so much more of the text is in the window: nearly every event ends within it.
SPARE_BYTES = 1 << 16
_LENGTHS = (1 << 16, 1 << 24)  # nearly every event is shorter than the first

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


def array_start(text: Window) -> tuple[int, int] | None:
    """Where the key of the array of events starts, and where its first event; None if there is no such array."""
    text.fill()
    found = _ARRAY.search(text.data, 0, text.length) or _BARE.match(text.data, 0, text.length)
    found = found or retried(text, lambda: text.search(_ARRAY, 0))
    return (found.start(), found.end()) if found else None


def first_event(text: Window) -> int | None:
    """Where the event behind the first separator starts; None if there is no separator any more."""
    found = retried(text, lambda: text.search(_SEPARATOR, 0))
    return found.end() if found else None


def retried(text: Window, step: Callable[[], Result]) -> Result:
    """The result of the step, which is tried again with more of the text in the window as long as it needs that."""
    while True:
        try:
            return step()
        except NeedsMoreError:  # noqa: PERF203 rare, and what was tried must be undone
            text.grow()


class EventArray:
    """The events of an array that starts at `start` of the window; `read` adds them to the `sink`.

    Afterwards `count` is how many events there were, `repaired` how many values were repaired, `skipped` how many
    events were lost. `end` is the position behind the array's bracket; None if the text breaks off, at `position`.
    `begin`: where the grid begins, if the array does not start there; it counts from the text's begin.
    """

    def __init__(self, text: Window, start: int, sink: Columns | Tips, begin: int | None = None) -> None:
        self.text = text
        self.position = start
        self.begin = text.origin + start if begin is None else begin
        self.end: int | None = None
        self.count = self.repaired = self.skipped = 0
        self._sink = sink
        self._decoder = msgspec.json.Decoder(list[sink.event])  # type: ignore[name-defined]
        self._exact = msgspec.json.Decoder(list[sink.exact])  # type: ignore[name-defined]
        #: Batches that were not decoded typed, with their texts.
        self._decoded: list[tuple[list[Any], bytes]] = []

    def read(self, until: int | None = None) -> None:
        """Read all events, or those up to the first one's end behind `until`, which counts from the text's begin."""
        self._step(lambda: self._after(self.position))
        while self.end is None and (until is None or self.text.origin + self.position < until):
            self._advance(until)
            if self.position >= self.text.length:
                break
            self._step(self._batch)

    def _advance(self, until: int | None) -> None:
        """Move the window so that it holds the next batch and the byte before it."""
        needed = self.position + BATCH_BYTES + SPARE_BYTES
        if until is not None:
            needed = min(needed, until - self.text.origin + SPARE_BYTES)
        if needed > self.text.length and not self.text.is_last:
            dropped = max(self.position - 1, 0)
            self.text.forget(dropped)
            self.position -= dropped
            self.text.fill(needed - dropped)

    def _step(self, step: Callable[[], None]) -> None:
        """Do a step, which begins anew where the window was too small for it, and then add its events."""
        before = self.position, self.end, self.repaired, self.skipped

        def begun() -> None:
            self.position, self.end, self.repaired, self.skipped = before
            self._decoded.clear()
            step()

        retried(self.text, begun)
        for events, text in self._decoded:
            self.count += len(events)
            if not self._sink.add(events):
                self._sink.add(self._exact.decode(text))
        self._decoded.clear()

    def _batch(self) -> None:
        passed = self.text.origin + self.position - self.begin
        line = self.begin + (passed // BATCH_BYTES + 1) * BATCH_BYTES - self.text.origin
        mark = self.text.search(_SEPARATOR, line)
        stop, following = (mark.start() + 1, mark.end()) if mark else (self.text.length,) * 2
        taken = self._take(self.position, stop) if mark else self._take_last()
        if taken is not None:
            self.count += taken
        elif not self._decode(self.position, stop):
            is_repairable = _repair(self.text.between(self.position, stop))[1] > 0
            marks = list(_SEPARATOR.finditer(self.text.data, self.position, stop))
            starts = [self.position, *(each.end() for each in marks)]
            self._halves(starts, [*(each.start() + 1 for each in marks), stop], repair=is_repairable)
        self.position = max(self.position, following)

    def _take(self, start: int, stop: int) -> int | None:
        """Decode a batch in place, and return how many events it had: brackets are put around it for as long."""
        if not start:
            return self._sink.add_typed(b"".join((b"[", self.text.between(0, stop), b"]")))
        data = self.text.data
        around = data[start - 1], data[stop]
        data[start - 1], data[stop] = b"[]"
        try:
            return self._sink.add_typed(memoryview(data)[start - 1 : stop + 1])
        finally:
            data[start - 1], data[stop] = around

    def _take_last(self) -> int | None:
        """Decode up to the last bracket in the text: what is a list of events so far has its end there."""
        bracket = self.text.data.rfind(b"]", self.position, self.text.length)
        stop = bracket
        while stop > self.position and self.text.data[stop - 1 : stop].isspace():
            stop -= 1
        taken = self._take(self.position, stop) if stop > self.position else None
        if taken is not None:
            self.end = bracket + 1
        return taken

    def _halves(self, starts: list[int], stops: list[int], *, repair: bool) -> None:
        """Decode the events between the first start and the last stop that no earlier event has covered, by halves."""
        if self.end is not None or stops[-1] <= self.position:
            return
        middle = len(starts) // 2
        if middle == 0:
            self._alone(max(starts[0], self.position), stops[0])
            return
        for part in (slice(None, middle), slice(middle, None)):
            if self.end is None and stops[part][-1] > self.position:
                start, stop = max(starts[part][0], self.position), stops[part][-1]
                if not self._decode(start, stop, repair=repair):
                    self._halves(starts[part], stops[part], repair=repair)

    def _decode(self, start: int, stop: int, *, repair: bool = True) -> bool:
        batch = b"".join((b"[", self.text.between(start, stop), b"]"))
        try:
            events = self._decoder.decode(batch)
        except _FAILURES:
            if not repair:
                return False
            batch, repaired = _repair(batch)
            try:
                events = self._decoder.decode(batch)
            except _FAILURES:
                return False
            self.repaired += max(repaired, 1)
        self._decoded.append((events, batch))
        return True

    def _alone(self, start: int, stop: int) -> None:
        """Decode the event at `start`, which does not decode up to `stop`: it ends elsewhere, or is damaged."""
        is_last = self.text.is_last and stop == self.text.length
        length = self._length(start)
        if length is not None:
            is_read = self._decode(start, start + length)
            self._after(start + length)
        else:
            closing = self.text.search(_CLOSING, start) if is_last else None
            is_read = self._requoted(start, closing.start() + 1 if closing else stop)
            if not is_read and is_last and not closing:
                self.position = stop  # cut off within this event
                return
            self._after(closing.start() + 1 if closing else stop)
        self.skipped += not is_read

    def _length(self, start: int) -> int | None:
        for most in _LENGTHS:
            # Latin-1 keeps one character a byte, so that the length counts bytes.
            text = self.text.between(start, start + most).decode("latin-1")
            try:
                return _JSON.raw_decode(text)[1]
            except _FAILURES as error:
                if len(text) < most and not self.text.is_last:
                    raise NeedsMoreError from None
                if not isinstance(error, json.JSONDecodeError) or (
                    error.pos < len(text) - 16 and not error.msg.startswith("Unterminated")
                ):
                    return None  # damaged: more text will not help
        return None

    def _requoted(self, start: int, stop: int) -> bool:
        event = _requote(_repair(self.text.between(start, stop))[0].decode("utf-8", "replace"))
        batch = b"[" + event.encode() + b"]"
        try:
            events = self._decoder.decode(batch)
        except _FAILURES:
            return False
        self._decoded.append((events, batch))
        self.repaired += 1
        return True

    def _after(self, stop: int) -> None:
        """Move behind an event that ends at `stop`: to the next event, or to the end of the array."""
        between = _BETWEEN.match(self.text.data, stop, self.text.length)
        self.position = between.end() if between else stop
        if self.position == self.text.length and not self.text.is_last:
            raise NeedsMoreError
        sign = self.text.between(self.position, self.position + 1)
        if sign == b"]":
            self.end = self.position + 1
        elif sign not in (b"{", b""):
            mark = self.text.search(_SEPARATOR, self.position)
            self.skipped += 1
            self.position = mark.end() if mark else self.text.length


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
