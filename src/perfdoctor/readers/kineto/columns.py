"""How do the values of many events become exact columns?

Times become integer nanoseconds. Kineto writes microseconds with up to three decimals; a float holds these exactly
below 2^43, where its spacing is 2^-10. Larger times, which count from 1970, must be decoded as raw text:
`InexactError` asks for that. What a value becomes never depends on the values beside it, and so not on where a batch
begins.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from perfdoctor.model.columns import UNKNOWN, Ints, Mask, Text, constant, taken

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: In a time column: the event has no readable time.
NO_TIME = np.iinfo(np.int64).min
_EXACT_BELOW = 2.0**43
_LAST_NS = 2**61  # leaves room for a start and a duration to be added
#: A column of any type of integers.
Numbers = npt.NDArray[Any]
_WIDTHS = ((np.int8, 2**7 - 1), (np.int16, 2**15 - 1), (np.int32, 2**31 - 1), (np.int64, 2**63))
_Size = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class InexactError(Exception):
    """These times do not fit a float to the nanosecond: decode them again as decimals."""


class _Numbered(dict[str | bytes, int]):
    """Numbers each distinct text in the order of first appearance."""

    sent = 0

    def __missing__(self, text: str | bytes) -> int:
        number = self[text] = len(self)
        return number

    def new(self) -> list[str | bytes]:
        """What was numbered since the last time."""
        first, self.sent = self.sent, len(self)
        return list(islice(self, first, None))


def nanoseconds(microseconds: list[Any]) -> Ints:
    """The same times in ns, exactly; NO_TIME where there is none. Raises InexactError where a float lost digits."""
    column = _array(microseconds)
    if column.dtype.kind == "i":
        return of_whole(column.astype(np.int64)) if _is_short(column) else _one_by_one(microseconds)
    return of_floats(column) if column.dtype.kind == "f" else _one_by_one(microseconds)


def of_whole(microseconds: Ints) -> Ints:
    """Whole microseconds in ns. Raises InexactError where they are too long for it."""
    if not _is_short(microseconds):
        raise InexactError
    return microseconds * 1000


def of_floats(microseconds: npt.NDArray[Any]) -> Ints:
    """Microseconds in ns. Raises InexactError where the floats may have lost digits."""
    if not (np.abs(microseconds) < _EXACT_BELOW).all():
        raise InexactError
    floor = np.floor(microseconds)  # separately, because 1000 times a float close to the limit is itself rounded
    whole: Ints = floor.astype(np.int64)
    part: Ints = np.rint((microseconds - floor) * 1000).astype(np.int64)
    return whole * 1000 + part


def of_digits(microseconds: list[Any]) -> Ints:
    """Times in ns that are written with three decimals and in one length, such as `1712195495519689.123`.

    Raises InexactError where they are written in another way.
    """
    texts = list(map(bytes, microseconds))
    length = len(texts[0])
    digits = np.frombuffer(b"".join(texts), np.uint8)
    is_alike = len("0.000") <= length <= len("1712195495519689.123") and set(map(len, texts)) == {length}
    if not is_alike or not (digits[length - 4 :: length] == ord(".")).all():
        raise InexactError
    digits = np.delete(digits.reshape(-1, length), -4, axis=1) - ord("0")
    if digits.max() > 9:
        raise InexactError
    result: Ints = digits.astype(np.int64) @ (10 ** np.arange(length - 2, -1, -1, dtype=np.int64))
    return result


def _is_short(column: npt.NDArray[Any]) -> bool:
    return not column.size or -(_LAST_NS // 1000) < int(column.min()) <= int(column.max()) < _LAST_NS // 1000


def _one_by_one(microseconds: list[Any]) -> Ints:
    return np.fromiter(map(_nanoseconds, microseconds), np.int64, len(microseconds))


def _array(values: list[Any]) -> npt.NDArray[Any]:
    try:
        column = np.array(values)
    except ValueError:  # lists of different lengths among them
        return np.empty(0, object)
    return column if column.ndim == 1 else np.empty(0, object)


def _nanoseconds(microseconds: object) -> int:
    if isinstance(microseconds, msgspec.Raw):
        text = bytes(microseconds)
        microseconds = msgspec.json.decode(text) if text else None
        if isinstance(microseconds, float) and abs(microseconds) >= _EXACT_BELOW:
            microseconds = Decimal(text.decode())  # a float does not hold it exactly
    if isinstance(microseconds, float):
        return int(of_floats(np.array([microseconds]))[0])
    try:
        value = Decimal(str(microseconds + 0 if isinstance(microseconds, int) else microseconds)) * 1000
        return int(value.to_integral_value()) if abs(value) < _LAST_NS else NO_TIME
    except InvalidOperation:  # not a number, or none at all
        return NO_TIME


def written(values: list[Any]) -> Ints:
    """Values that were decoded as `int`, as a column. Raises OverflowError beyond 64 bits."""
    try:
        return np.frombuffer(struct.pack(f"={len(values)}q", *values), np.int64)  # in half the time of np.fromiter
    except struct.error as error:
        raise OverflowError from error


def integers(values: list[Any]) -> Ints:
    """The values as integers; UNKNOWN where one is none. Texts count by the number at their end: "stream 7" is 7."""
    column = _array(values) if type(values[0]) is int else None
    if column is not None and column.dtype.kind == "i":
        return column.astype(np.int64)
    return np.fromiter(map(integer, values), np.int64, len(values))


def integer(value: object) -> int:
    """One value as an integer, as `integers` does it."""
    if isinstance(value, str):
        return _number_at_end(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else UNKNOWN


@lru_cache(maxsize=4096)  # a trace names a few threads and streams, a hundred thousand times
def _number_at_end(text: str) -> int:
    digits = re.search(r"(-?\d+)\s*$", text)
    return int(digits[1]) if digits and len(digits[1]) < 19 else UNKNOWN


def product(numbers: str) -> int:
    """The product of three sizes in a JSON list, such as a grid; UNKNOWN for any other text."""
    try:
        factors = msgspec.json.decode(numbers, type=tuple[_Size, _Size, _Size])
    except ValueError:
        return UNKNOWN
    return min(math.prod(factors), 2**62)


class EventTable:
    """The columns of one group of events. Text may hold equal values under two codes.

    Numbers are kept in the smallest type that holds them, and given as 64 bits.
    """

    def __init__(self, numbers: dict[str, Numbers], texts: dict[str, Text]) -> None:
        self._numbers = numbers
        self.texts = texts

    @property
    def length(self) -> int:
        """The number of rows."""
        return len(self.texts["name"])

    def __getitem__(self, column: str) -> Ints:
        return self._numbers[column].astype(np.int64, copy=False)

    def __setitem__(self, column: str, values: Numbers) -> None:
        self._numbers[column] = values

    def __contains__(self, column: str) -> bool:
        return column in self._numbers

    def __delitem__(self, column: str) -> None:
        del self._numbers[column]

    def take(self, rows: Mask | npt.NDArray[np.intp]) -> EventTable:
        """The rows that a mask or an array of indices names."""
        numbers = {name: taken(values, rows) for name, values in self._numbers.items()}
        return EventTable(numbers, {name: text.take(rows) for name, text in self.texts.items()})

    def keep(self, rows: Mask | npt.NDArray[np.intp]) -> None:
        """Become these rows; one column after another, so that no more memory is taken than for one of them."""
        for name in self._numbers:
            self._numbers[name] = taken(self._numbers[name], rows)
        for name in self.texts:
            self.texts[name] = self.texts[name].take(rows)

    def all_columns(self) -> list[Numbers]:
        """All columns as numbers."""
        return [*self._numbers.values(), *(text.codes for text in self.texts.values())]


class GroupPart(msgspec.Struct, array_like=True, gc=False):
    """Rows on their way from one process to another: columns as (dtype, bytes), and the texts that have new numbers."""

    numbers: dict[str, tuple[str, memoryview]]
    codes: dict[str, tuple[str, memoryview]]
    new: dict[str, list[Any]]  # str, or bytes


class GrowingColumns:
    """The columns of one group of events, grown batch by batch and kept in the smallest types that hold them."""

    def __init__(self) -> None:
        self._numbers: dict[str, list[Numbers]] = {}
        self._codes: dict[str, list[Numbers]] = {}
        self._texts: dict[str, _Numbered] = {}
        self._packed = 0

    def __len__(self) -> int:
        return sum(map(len, self._numbers.get("start_ns", ())))

    def add(self, numbers: Mapping[str, Ints], texts: Mapping[str, Iterable[str | bytes]], count: int) -> None:
        """Add `count` rows: all columns of the group. Texts are str or, as read from the file, bytes."""
        for column, values in numbers.items():
            self._numbers.setdefault(column, []).append(values)
        for column, strings in texts.items():
            numbered = self._texts.setdefault(column, _Numbered())
            codes = np.fromiter(map(numbered.__getitem__, strings), np.int32, count)
            self._codes.setdefault(column, []).append(codes)

    def pack(self) -> None:
        """Join what was added since the last time."""
        for parts in (*self._numbers.values(), *self._codes.values()):
            if len(parts) > self._packed:
                parts[self._packed :] = [_narrow(np.concatenate(parts[self._packed :]))]
        self._packed = len(self._numbers.get("start_ns", ()))

    def take(self) -> GroupPart:
        """What was added since the last time, for another's `join`; nothing of it is kept but the numbers of texts."""
        self._packed = 0
        self.pack()
        numbers = {name: _sendable(parts) for name, parts in self._numbers.items()}
        codes = {name: _sendable(parts) for name, parts in self._codes.items()}
        self._numbers, self._codes, self._packed = {}, {}, 0
        return GroupPart(numbers, codes, {name: texts.new() for name, texts in self._texts.items()})

    def join(self, part: GroupPart, known: dict[str, Numbers]) -> None:
        """Add rows that another has read; `known`: by column, by its numbers of texts the ones of this."""
        for name, (dtype, values) in part.numbers.items():
            self._numbers.setdefault(name, []).append(np.frombuffer(values, dtype))
        for name, strings in part.new.items():
            numbered = self._texts.setdefault(name, _Numbered())
            new = np.fromiter(map(numbered.__getitem__, strings), np.int32, len(strings))
            known[name] = np.concatenate((known[name], new)) if name in known else new
        for name, (dtype, values) in part.codes.items():
            codes = known[name].take(np.frombuffer(values, dtype))
            self._codes.setdefault(name, []).append(_narrow(codes))
        self._packed = len(self._numbers.get("start_ns", ()))

    def table(self) -> EventTable:
        """All rows, which are not kept here."""
        numbers, codes = self._numbers, self._codes
        self._numbers, self._codes = {}, {}
        texts = {name: np.concatenate(codes.pop(name), dtype=np.int32) for name in list(codes)}
        return EventTable(
            {name: _joined(numbers.pop(name)) for name in list(numbers)},
            {name: Text(rows, [_string(text) for text in self._texts[name]]) for name, rows in texts.items()},
        )


def _joined(parts: list[Numbers]) -> Numbers:
    first = int(parts[0][0])
    if all(int(part[0]) == first and (part == part[0]).all() for part in parts):
        return constant(first, sum(map(len, parts)))
    return _narrow(np.concatenate(parts))


def _sendable(parts: list[Numbers]) -> tuple[str, memoryview]:
    (column,) = parts
    return column.dtype.str, column.view(np.uint8).data


def _narrow(column: Numbers) -> Numbers:
    """The same numbers in as few bytes as hold them all."""
    least, most = (int(column.min()), int(column.max())) if column.size else (0, 0)
    return column.astype(next(kind for kind, last in _WIDTHS if -last <= least and most <= last), copy=False)


def _string(text: str | bytes) -> str:
    """The text; raw JSON on one line, spaced as Kineto does."""
    if isinstance(text, str):
        return text
    try:
        return msgspec.json.format(text, indent=0).decode("utf-8", "replace")
    except ValueError:
        return text.decode("utf-8", "replace")
