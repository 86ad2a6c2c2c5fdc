"""How do columns become Arrow batches? Some rows at a time, without a Python object a number.

nanoarrow makes them, which reading SQLite needs anyway. They go to ADBC's SQLite driver, and to the writers of Parquet
and Arrow files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from perfdoctor.model.columns import Column, Mask, Text

#: Of 15 columns about 8 MB: more is no faster.
ROWS = 65_536

#: A number that stands for no text.
_NO_TEXT = -1


class Field(Struct, frozen=True):
    """One column to be written: numbers with a mask of those that are NULL (None: none is), or text ("" is NULL)."""

    values: Column
    missing: Mask | None = None

    def arrow_type(self) -> Any:
        import nanoarrow  # noqa: PLC0415

        if isinstance(self.values, Text):
            return nanoarrow.string()
        kinds = {"i": nanoarrow.int64, "f": nanoarrow.float64, "b": nanoarrow.bool_, "u": nanoarrow.uint8}
        return kinds[self.values.dtype.kind]()

    def part(self, begin: int, end: int) -> Any:
        """The Arrow array of the rows from `begin` to `end`."""
        import nanoarrow  # noqa: PLC0415

        values, kind = self.values, self.arrow_type()
        missing: Mask | None
        if isinstance(values, Text):
            missing, buffers = _text(values.take(np.arange(begin, end)))
        else:
            part: Any = np.ascontiguousarray(values[begin:end])
            buffers = [np.packbits(part, bitorder="little") if part.dtype == np.bool_ else part]
            missing = None if self.missing is None else self.missing[begin:end]
        valid = None if missing is None or not missing.any() else np.packbits(~missing, bitorder="little")
        return nanoarrow.c_array_from_buffers(kind, end - begin, [valid, *buffers])


def _text(part: Text) -> tuple[Mask, list[Any]]:
    """Mask of rows without a text, and the offsets and bytes of all texts."""
    used, codes = np.unique(part.codes, return_inverse=True)
    encoded = [part.values[code].encode("utf-8", "replace") for code in used.tolist()]
    lengths = np.array([len(each) for each in encoded], np.int64)
    offsets = np.zeros(codes.size + 1, np.int64)
    np.cumsum(lengths[codes], out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError("the texts of one batch have more than 2 GiB")
    return lengths[codes] == 0, [offsets.astype(np.int32), b"".join(map(encoded.__getitem__, codes.tolist()))]


def schema(fields: Mapping[str, Field]) -> Any:
    """Arrow schema of batches with these columns."""
    import nanoarrow  # noqa: PLC0415

    return nanoarrow.c_schema(nanoarrow.struct({name: field.arrow_type() for name, field in fields.items()}))


def batches(fields: Mapping[str, Field], rows: int = ROWS) -> Iterator[Any]:
    """The rows of columns of equal length, at most so many at a time."""
    import nanoarrow  # noqa: PLC0415

    of, length = schema(fields), len(next(iter(fields.values())).values)
    for begin in range(0, length, rows):
        end = min(begin + rows, length)
        parts = [field.part(begin, end) for field in fields.values()]
        # Our own arrays have the lengths and types that are said here: they are not checked once more.
        yield nanoarrow.c_array_from_buffers(
            of, end - begin, [None], null_count=0, children=parts, move=True, validation_level="none"
        )


class Texts:
    """Different texts, by numbers in the order in which they came."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def numbered(self, column: Text) -> Field:
        """The number of each row's text; NULL for none."""
        used = np.zeros(len(column.values), dtype=bool)
        used[column.codes] = True
        of_code = np.full(len(column.values), _NO_TEXT, np.int64)
        for code in np.flatnonzero(used).tolist():
            if text := column.values[code]:
                of_code[code] = self._numbers.setdefault(text, len(self._numbers))
        numbers: npt.NDArray[np.int64] = of_code[column.codes] if len(column) else np.empty(0, np.int64)
        missing = numbers == _NO_TEXT
        return Field(numbers, missing if missing.any() else None)

    def since(self, first: int) -> Mapping[str, Field]:
        """The texts from this number on, as columns of a table."""
        texts = list(self._numbers)[first:]
        return {"id": Field(np.arange(first, first + len(texts))), "text": Field(Text.of(texts))}
