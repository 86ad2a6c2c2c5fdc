"""What is a column? Numbers as numpy arrays, text with each different value held once."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import Regex, regex

#: Columns of numbers, one element a row unless said otherwise.
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Numbers or codes of texts.
Whole = npt.NDArray[np.signedinteger[Any]]

#: What a column of a signal is stored as, by the type that `vocabulary.signals` declares; text: see `Text`.
DTYPES: Mapping[type, np.dtype[Any]] = {
    int: np.dtype(np.int64), float: np.dtype(np.float64), bool: np.dtype(np.bool_),
}  # fmt: skip
#: In place of an answer about a value: nobody has asked yet.
_UNASKED = -1
#: A number that was not recorded (bytes, correlation, grid size, ...).
UNKNOWN = -1
#: No size in bytes is as large, and two of them are still an int64 together.
BEYOND = 1 << 62


Class = TypeVar("Class")
#: Which of these values are looked for.
_Test = Callable[[Sequence[str]], Sequence[bool]]
#: From so many different texts on it is worth a look whether most of them differ in numbers alone (`op_id = 17`).
_MANY_VALUES = 256
_ALL_ZERO = str.maketrans("123456789", "0" * 9)
_END = "\x00"
#: So many characters of a text are shown by `repr`.
_SHOWN_LENGTH = 40
_WITHOUT_DIGITS = "without digits"
#: `(?P=…)` matches the text of a group again, `\N{…}` is a character by its name.
_NAMES_A_DIGIT = regex(r"[0-9]|\(\?P=|\\N")


@lru_cache(maxsize=256)
def _expression(text: str) -> re.Pattern[str]:
    """The one expression of each text, so that answers about it are kept."""
    return regex(text)


class Text:
    """A column of strings in which each different value is held once.

    `codes` is int32, one a row, into `values`. Equal values may appear under two codes after a merge; questions go
    through `matches` and `equals`, which do not care.

    Each value is classified once: the answers to a pattern, or of a function at the level of its module, are kept with
    the table of values, for all columns that share it (`take`), and are gone with it. A lambda, or a function inside
    another one, may answer otherwise the next time: it is asked again.
    """

    __slots__ = ("_known", "codes", "values")

    def __init__(
        self, codes: npt.NDArray[np.int32], values: Sequence[str], known: dict[Hashable, Any] | None = None
    ) -> None:
        self.codes = codes
        self.values = values
        #: By pattern or function its answers, one a value.
        self._known = {} if known is None else known

    @classmethod
    def of(cls, strings: Iterable[str]) -> Text:
        index: dict[str, int] = {}
        codes = [index.setdefault(string, len(index)) for string in strings]
        return cls(np.array(codes, dtype=np.int32), list(index))

    @classmethod
    def constant(cls, value: str, length: int) -> Text:
        return cls(np.zeros(length, dtype=np.int32), [value])

    def __len__(self) -> int:
        """How many rows there are.

        Returns:
            The number of rows, not that of different values.
        """
        return int(self.codes.size)

    def __repr__(self) -> str:
        first = [value if len(value) <= _SHOWN_LENGTH else f"{value[:_SHOWN_LENGTH]}…" for value in islice(self, 3)]
        shown = ", ".join(map(repr, first)) + (", …" if len(self) > len(first) else "")
        return f"<Text of {len(self):,} rows{': ' if first else ''}{shown}>"

    def __eq__(self, other: object) -> bool:
        """Refused: of a numpy array it would be one bool a row, of a list one alone."""
        if self is other:
            return True
        raise PerfdoctorError("a column of text is not compared by ==", do='Use .equals("…", …): one bool a row.')

    __hash__ = object.__hash__

    def __getitem__(self, row: int) -> str:
        """The text of one row.

        Args:
            row: The number of the row, from 0.

        Returns:
            The text.
        """
        return self.values[int(self.codes[row])]

    def __iter__(self) -> Iterator[str]:
        """The texts, row by row.

        Returns:
            One text a row.
        """
        values = self.values
        return (values[code] for code in self.codes.tolist())

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """What `numpy.asarray(text)` gives.

        Args:
            dtype: Another type of the array's elements.
            copy: It makes no difference: the array is a new one.

        Returns:
            One str object a row. Rows of one value share it.
        """
        values = np.empty(len(self.values), dtype=object)
        values[:] = self.values
        rows = values[self.codes]
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def take(self, rows: npt.NDArray[np.generic]) -> Text:
        """Some of the rows.

        Args:
            rows: One bool a row, or indices of rows.

        Returns:
            These rows. `values` stays as it is, with those of no row any more.
        """
        return Text(self.codes[rows], self.values, self._known)

    def trimmed(self) -> Text:
        """The same rows, without the values that no row has: after `take` these may be most of the table."""
        present, codes = numbered(self.codes)
        return Text(codes.astype(np.int32), [self.values[code] for code in present.tolist()])

    def matches(self, pattern: re.Pattern[str] | str) -> Mask:
        """In which rows does a pattern occur?

        Args:
            pattern: A regular expression, which may occur anywhere in the text.

        Returns:
            One bool a row.
        """
        pattern = _expression(pattern) if isinstance(pattern, str) else pattern
        # A pattern that names no digit, alone or as the end of a range, and repeats no text takes all digits alike.
        if not _NAMES_A_DIGIT.search(pattern.pattern) and (bare := self._alike()) is not None:
            return bare.matches(pattern)
        return self._answers(pattern, lambda values: [found is not None for found in map(pattern.search, values)])

    def equals(self, *strings: str) -> Mask:
        """Which rows are one of these texts?

        Args:
            *strings: The texts.

        Returns:
            One bool a row.
        """
        wanted = set(strings)
        if len(self.values) > len(self):
            return np.array([value in wanted for value in self], dtype=np.bool_)
        return np.array([value in wanted for value in self.values], dtype=np.bool_).take(self.codes)

    def where(self, test: Callable[[str], bool]) -> Mask:
        """For which rows does a test hold?

        Args:
            test: A function of a text. It is called once for each different value.

        Returns:
            One bool a row.
        """
        return self._answers(test, lambda values: [bool(test(value)) for value in values])

    def classified(self, classify: Callable[[str], Class]) -> list[Class]:
        """The class of each value (not of each row)."""
        found: list[Class] = self._kept(classify, "classes", lambda: [classify(value) for value in self.values])
        return found

    def has(self, classify: Callable[[str], Class], *classes: Class) -> Mask:
        """One bool a row: does `classify` put its value into one of these `classes`?"""
        wanted = set(classes)
        return np.array([each in wanted for each in self.classified(classify)], dtype=np.bool_).take(self.codes)

    def numbers(self, count: Callable[[str], int]) -> Ints:
        """One number a row: what `count` returns for its value."""
        return np.array(self.classified(count), dtype=np.int64).take(self.codes)

    def sums(self, *amounts: npt.NDArray[np.generic]) -> list[tuple[Any, ...]]:
        """Each value that occurs, in how many rows, and the sums of `amounts` (each a number a row) over these rows."""
        count, *summed = (
            np.bincount(self.codes, weights=each, minlength=len(self.values)).tolist() for each in (None, *amounts)
        )
        return [(value, *sums) for value, *sums in zip(self.values, count, *summed, strict=True) if sums[0]]

    def mapped(self, change: Callable[[str], str]) -> Text:
        """Each value changed; values that become equal share a code. Columns that share their values go on sharing."""
        changed: Text = self._kept(change, "values", lambda: Text.of(self.classified(change)))
        return Text(changed.codes.take(self.codes), changed.values, changed._known)

    def _answers(self, question: Hashable, test: _Test) -> Mask:
        answers: _Answers = self._kept(question, "answers", lambda: _Answers(len(self.values)))
        return answers.of(self, test)

    def _alike(self) -> Text | None:
        """The same rows with all digits of the values as 0; None if that hardly makes the table smaller."""
        if len(self.values) < _MANY_VALUES:
            return None
        if _WITHOUT_DIGITS not in self._known:
            bare = Text.of(_END.join(self.values).translate(_ALL_ZERO).split(_END))
            bare = bare if len(bare) == len(self.values) else self
            self._known[_WITHOUT_DIGITS] = bare if 2 * len(bare.values) <= len(self.values) else None
        found: Text | None = self._known[_WITHOUT_DIGITS]
        return None if found is None else found.take(self.codes)

    def _kept(self, question: Hashable, kind: str, compute: Callable[[], Any]) -> Any:
        """The known result for `question` and `kind`; else it is computed, and kept for a lasting question."""
        known = self._known if _is_lasting(question) else {}
        key = (kind, question)
        if key not in known:
            known[key] = compute()
        return known[key]

    @staticmethod
    def join(parts: Sequence[Text]) -> Text:
        """One column below another; equal values share a code."""
        index: dict[str, int] = {}
        codes = []
        for part in parts:
            table = np.array([index.setdefault(value, len(index)) for value in part.values], dtype=np.int32)
            codes.append(table[part.codes] if table.size else part.codes)
        return Text(np.concatenate(codes) if codes else np.empty(0, np.int32), list(index))


def constant(value: int, length: int) -> Ints:
    """A read-only column with `value` in all of `length` rows, which takes the memory of one."""
    return np.broadcast_to(np.array(value, np.int64), length)


def taken(column: npt.NDArray[Any], rows: npt.NDArray[np.generic]) -> npt.NDArray[Any]:
    """The rows that a mask or an array of indices names; of one number in all rows none is copied."""
    if column.strides == (0,) and column.size:
        return np.broadcast_to(column[0], int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else rows.size)
    found: npt.NDArray[Any] = column[rows]
    return found


class _Answers:
    """Yes or no for each value of a table, determined when a column with a row of that value first asks."""

    def __init__(self, count: int) -> None:
        self._table = np.full(count, _UNASKED, np.int8)
        self._is_complete = False

    def of(self, text: Text, test: _Test) -> Mask:
        """One bool a row: the answer to its value, which `test` gives where it is not known yet."""
        table = self._table
        if not self._is_complete:
            if table.size <= len(text):
                new = np.flatnonzero(table == _UNASKED)
            else:  # after `take` most values may belong to no row any more: those need no answer
                new = distinct(text.codes[table.take(text.codes) == _UNASKED])
            if new.size:
                table[new] = test([text.values[code] for code in new.tolist()])
            self._is_complete = bool((table != _UNASKED).all())
        return table.take(text.codes).view(np.bool_)


def _is_lasting(question: object) -> bool:
    """Is it a pattern, or a function that will still be the same one: neither a lambda nor inside another function?"""
    if isinstance(question, (re.Pattern, Regex)):
        return True
    return "<" not in getattr(question, "__qualname__", "<") and getattr(question, "__self__", None) is None


Column = npt.NDArray[np.generic] | Text


#: Up to this many times as many numbers as rows, and up to so many in all, a table is quicker than sorting; up to twice
#: as many it always is.
_TABLE_TIMES, _TABLE_SIZE = 16, 4_000_000


def distinct(values: Whole) -> Ints:
    """The different values, ascending. As `np.unique`, without sorting where the values lie close together."""
    occurs = _occurs(values)
    if occurs is None:
        return np.unique(values).astype(np.int64, copy=False)
    return np.flatnonzero(occurs) + int(values.min())


def numbered(values: Whole) -> tuple[Ints, Ints]:
    """The different values, ascending, and for each row the index of its value."""
    occurs = _occurs(values)
    if occurs is None:
        unique, codes = np.unique(values, return_inverse=True)
        return unique.astype(np.int64, copy=False), codes.reshape(-1)
    low = int(values.min())
    return np.flatnonzero(occurs) + low, (np.cumsum(occurs) - 1)[values - low]


def firsts(numbers: Ints) -> Ints:
    """First row of each number from 0 to the greatest; all of them must occur."""
    first = np.empty(int(numbers.max(initial=-1)) + 1, np.int64)
    first[numbers[::-1]] = np.arange(numbers.size - 1, -1, -1)  # the first row is written last
    return first


def places(known: Ints, wanted: Ints) -> Ints:
    """First row of `known` with each `wanted` number, UNKNOWN if there is none. `known` must not be empty."""
    low, high = int(known.min()), int(known.max())
    if _is_worth_a_table(low, high, known.size):
        table = np.full(high - low + 2, UNKNOWN, np.int64)  # what is beyond either end is at the last place
        table[known[::-1] - low] = np.arange(known.size - 1, -1, -1)
        return table[np.where((wanted >= low) & (wanted <= high), wanted - low, -1)]
    order = np.argsort(known, kind="stable")
    at = order[np.minimum(np.searchsorted(known[order], wanted), known.size - 1)]
    return np.where(known[at] == wanted, at, UNKNOWN)


def _is_worth_a_table(low: int, high: int, rows: int) -> bool:
    return high - low < max(2 * rows, min(_TABLE_TIMES * rows, _TABLE_SIZE))


def _occurs(values: Whole) -> Mask | None:
    """One bool for each number from the least to the greatest value: does it occur? None if that would be too many."""
    if not values.size:
        return None
    low, high = int(values.min()), int(values.max())
    if not _is_worth_a_table(low, high, values.size):
        return None
    occurs = np.zeros(high - low + 1, dtype=bool)
    occurs[values - low] = True
    return occurs


def occurring(values: Ints) -> list[int]:
    """Which values occur, ascending? Most columns hold one: seen without sorting."""
    if values.size and (values == values[0]).all():
        return [int(values[0])]
    return [int(value) for value in distinct(values)]
