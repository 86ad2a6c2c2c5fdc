"""How does a column become few bytes, and a column again? What compresses them finds neighbours that are alike."""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct, field

from perfdoctor.model.columns import Column, Floats, Ints, Mask, Text, constant
from perfdoctor.model.timeline import Frame

_WIDTHS = tuple(np.dtype(width) for width in ("i1", "<i2", "<i4", "<i8"))


class Numbers(Struct, frozen=True):
    """A column as the differences of neighbours, in as few bytes each as hold them. `width`: a place in `_WIDTHS`."""

    first: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] = 0
    width: Annotated[int, Meta(ge=0, lt=len(_WIDTHS))] = 0
    differences: bytes = b""
    count: Annotated[int, Meta(ge=0)] = 0

    @classmethod
    def of(cls, values: Ints) -> Numbers:
        if not values.size:
            return cls()
        apart = np.diff(values)
        least, most = int(apart.min(initial=0)), int(apart.max(initial=0))
        width = next(
            at for at, each in enumerate(_WIDTHS) if np.iinfo(each).min <= least and most <= np.iinfo(each).max
        )
        return cls(int(values[0]), width, apart.astype(_WIDTHS[width]).tobytes(), int(values.size))

    def values(self) -> Ints:
        """The numbers. Raises ValueError where so many are not there, in a file that was changed."""
        differences = np.frombuffer(self.differences, _WIDTHS[self.width])
        if self.count != (len(differences) + 1 if differences.size or self.count else 0):
            raise ValueError(f"{self.count} numbers of {len(differences)} differences")
        if not self.differences.strip(b"\0"):
            return constant(self.first, self.count)
        result = np.empty(self.count, np.int64)
        result[0] = self.first
        result[1:] = differences
        return np.cumsum(result, out=result)


class UnpackedColumns:
    """Unpacked columns, of which equal ones are there once: sizes and kinds are the same on most ranks of a job."""

    def __init__(self) -> None:
        self._values: dict[Numbers, Ints] = {}
        self._codes: dict[Numbers, npt.NDArray[np.int32]] = {}

    def values(self, packed: Numbers) -> Ints:
        known = self._values.get(packed)
        return known if known is not None else self._values.setdefault(packed, packed.values())

    def codes(self, packed: Numbers) -> npt.NDArray[np.int32]:
        known = self._codes.get(packed)
        return known if known is not None else self._codes.setdefault(packed, packed.values().astype(np.int32))


class Words(Struct, frozen=True):
    codes: Numbers
    values: tuple[str, ...]

    @classmethod
    def of(cls, text: Text) -> Words:
        occurring, codes = np.unique(text.codes, return_inverse=True)
        return cls(Numbers.of(codes.ravel().astype(np.int64)), tuple(text.values[code] for code in occurring.tolist()))

    def text(self, columns: UnpackedColumns) -> Text:
        """The column. Raises ValueError where a code is of no value, in a file that was changed."""
        codes = columns.codes(self.codes)
        if codes.size and not (codes.min() >= 0 and codes.max() < len(self.values)):
            raise ValueError("a code of no text")
        return Text(codes, [intern(value) for value in self.values])


class PackedFrame(Struct, frozen=True):
    """All columns of a frame. `measured`: float64, as they are in memory; `flags`: a byte each."""

    whole: Mapping[str, Numbers] = field(default_factory=dict)
    texts: Mapping[str, Words] = field(default_factory=dict)
    measured: Mapping[str, bytes] = field(default_factory=dict)
    flags: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, frame: Frame) -> PackedFrame:
        texts = {name: Words.of(column) for name, column in frame.columns.items() if isinstance(column, Text)}
        others = {name: column for name, column in frame.columns.items() if not isinstance(column, Text)}
        return cls(
            {name: Numbers.of(column.astype(np.int64)) for name, column in others.items() if column.dtype.kind == "i"},
            texts,
            {name: column.astype("<f8").tobytes() for name, column in others.items() if column.dtype.kind == "f"},
            {name: column.astype(np.int8).tobytes() for name, column in others.items() if column.dtype.kind == "b"},
        )

    def frame(self) -> Frame:
        columns = UnpackedColumns()
        found: dict[str, Column] = {name: each.values() for name, each in self.whole.items()}
        found |= {name: each.text(columns) for name, each in self.texts.items()}
        found |= {name: _floats(each) for name, each in self.measured.items()}
        found |= {name: _flags(each) for name, each in self.flags.items()}
        return Frame(found)


def _floats(packed: bytes) -> Floats:
    return np.frombuffer(packed, "<f8").astype(np.float64)


def _flags(packed: bytes) -> Mask:
    return np.frombuffer(packed, np.int8).astype(np.bool_)
