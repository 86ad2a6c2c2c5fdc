"""What is a column? Numbers as numpy arrays, text with each different value held once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

#: Columns of numbers, one element a row unless said otherwise.
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: What a column of a signal is stored as, by the type that `vocabulary.signals` declares; text: see `Text`.
DTYPES: Mapping[type, np.dtype[Any]] = {
    int: np.dtype(np.int64), float: np.dtype(np.float64), bool: np.dtype(np.bool_),
}  # fmt: skip
#: A number that was not recorded (bytes, correlation, grid size, ...).
UNKNOWN = -1


class Text:
    """A column of strings in which each different value is held once.

    `codes` is int32, one a row, into `values`. Equal values may appear under two codes after a merge; questions go
    through `matches` and `equals`, which do not care.
    """

    __slots__ = ("_matching", "codes", "values")

    def __init__(self, codes: npt.NDArray[np.int32], values: Sequence[str]) -> None:
        self.codes = codes
        self.values = values
        #: By pattern, for each value whether it occurs there; UNKNOWN until a row with that value was asked for.
        self._matching: dict[re.Pattern[str], npt.NDArray[np.int8]] = {}

    @classmethod
    def of(cls, strings: Iterable[str]) -> Text:
        index: dict[str, int] = {}
        codes = [index.setdefault(string, len(index)) for string in strings]
        return cls(np.array(codes, dtype=np.int32), list(index))

    @classmethod
    def constant(cls, value: str, length: int) -> Text:
        return cls(np.zeros(length, dtype=np.int32), [value])

    def __len__(self) -> int:
        return int(self.codes.size)

    def __getitem__(self, row: int) -> str:
        return self.values[int(self.codes[row])]

    def __iter__(self) -> Iterator[str]:
        values = self.values
        return (values[code] for code in self.codes.tolist())

    def take(self, rows: npt.NDArray[np.generic]) -> Text:
        """The rows that a mask or an array of indices names."""
        taken = Text(self.codes[rows], self.values)
        taken._matching = self._matching
        return taken

    def matches(self, pattern: re.Pattern[str]) -> Mask:
        """One bool a row: does the pattern occur in it? Each value is searched once for all columns of these values."""
        matching = self._matching.setdefault(pattern, np.full(len(self.values), UNKNOWN, np.int8))
        used = self._used()
        for code in used[matching[used] == UNKNOWN].tolist():
            matching[code] = pattern.search(self.values[code]) is not None
        rows: Mask = matching[self.codes] == 1 if matching.size else np.zeros(len(self), dtype=bool)
        return rows

    def equals(self, string: str) -> Mask:
        return self.where(lambda value: value == string)

    def where(self, test: Callable[[str], bool]) -> Mask:
        """One bool a row; the test is asked once for each different value."""
        table = np.zeros(len(self.values), dtype=bool)
        for code in self._used().tolist():
            table[code] = test(self.values[code])
        return table[self.codes] if table.size else np.zeros(len(self), dtype=bool)

    def _used(self) -> npt.NDArray[np.generic]:
        """Codes of which rows may be: after `take` most values may belong to no row any more."""
        return np.unique(self.codes) if len(self.values) > len(self) else np.arange(len(self.values))

    def mapped(self, change: Callable[[str], str]) -> Text:
        """Each value changed; values that become equal share a code."""
        index: dict[str, int] = {}
        table = np.array([index.setdefault(change(value), len(index)) for value in self.values], dtype=np.int32)
        return Text(table[self.codes] if table.size else self.codes, list(index))

    @staticmethod
    def join(parts: Sequence[Text]) -> Text:
        """One column below another; equal values share a code."""
        index: dict[str, int] = {}
        codes = []
        for part in parts:
            table = np.array([index.setdefault(value, len(index)) for value in part.values], dtype=np.int32)
            codes.append(table[part.codes] if table.size else part.codes)
        return Text(np.concatenate(codes) if codes else np.empty(0, np.int32), list(index))


Column = npt.NDArray[np.generic] | Text


def occurring(values: Ints) -> list[int]:
    """Which values occur, ascending? Most columns hold one: seen without sorting."""
    if values.size and (values == values[0]).all():
        return [int(values[0])]
    return [int(value) for value in np.unique(values)]
