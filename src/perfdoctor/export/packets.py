"""How are a million protobuf messages written from columns? Field by field, all rows of a field at once.

A field of many messages is an `EncodedField`: a matrix of bytes, one row a message, of which the first `lengths[i]` of
row i are used. Messages are made by concatenating fields row by row, without the unused bytes. Encoding:
https://protobuf.dev/programming-guides/encoding/ (varint, fixed64 and length-delimited fields are enough).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfdoctor.model.timeline import Ints, Mask

Bytes = npt.NDArray[np.uint8]

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_LONGEST_VARINT = 10


class EncodedField(NamedTuple):
    """One field of many messages: `matrix` is (rows, width) bytes, of which row i uses the first `lengths[i]`."""

    matrix: Bytes
    lengths: Ints


# --- one message ---


def varint(value: int) -> bytes:
    """A number from 0 to 2⁶⁴ − 1; a negative one as its 64-bit two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def key(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def number(field: int, value: int) -> bytes:
    return key(field, _VARINT) + varint(value)


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())


def double(field: int, value: float) -> bytes:
    return key(field, _FIXED64) + struct.pack("<d", value)


def message(field: int, body: bytes) -> bytes:
    return key(field, _BYTES) + varint(len(body)) + body


# --- many messages ---


def constant(data: bytes, count: int) -> EncodedField:
    """A field with the same `data` in each of `count` messages."""
    matrix = np.broadcast_to(np.frombuffer(data, np.uint8), (count, len(data)))
    return EncodedField(matrix, np.full(count, len(data), np.int64))


def chosen(table: EncodedField, codes: Ints) -> EncodedField:
    """Row `codes[i]` of a table for message i."""
    return EncodedField(table.matrix[codes], table.lengths[codes])


def table(entries: Sequence[bytes]) -> EncodedField:
    """A field whose rows are these byte strings."""
    lengths = np.fromiter(map(len, entries), np.int64, len(entries))
    width = int(lengths.max(initial=0))
    padded = b"".join(entry.ljust(width, b"\0") for entry in entries)
    return EncodedField(np.frombuffer(padded, np.uint8).reshape(len(entries), width), lengths)


def varints(values: Ints) -> EncodedField:
    """A field of the numbers, each as `varint` writes it."""
    rest = values.astype(np.uint64)
    columns, lengths = [], np.ones(values.size, np.int64)
    for _ in range(_LONGEST_VARINT):
        low, rest = (rest & np.uint64(127)).astype(np.uint8), rest >> np.uint64(7)
        more = rest > 0
        columns.append(low | (more.astype(np.uint8) << 7))
        lengths += more
        if not more.any():
            break
    return EncodedField(np.stack(columns, axis=1), lengths)


def numbers(field: int, values: Ints, present: Mask | None = None) -> EncodedField:
    """A varint field; empty where not `present`."""
    return _with_key(field, _VARINT, varints(values), present)


def fixed(field: int, values: npt.NDArray[np.generic], present: Mask | None = None) -> EncodedField:
    """A fixed64 field, from int64, uint64 or float64."""
    eight = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"))).view(np.uint8).reshape(-1, 8)
    return _with_key(field, _FIXED64, EncodedField(eight, np.full(values.size, 8, np.int64)), present)


def _with_key(field: int, wire: int, part: EncodedField, present: Mask | None) -> EncodedField:
    tag = np.frombuffer(key(field, wire), np.uint8)
    matrix = np.concatenate((np.broadcast_to(tag, (part.lengths.size, tag.size)), part.matrix), axis=1)
    lengths = part.lengths + tag.size
    return EncodedField(matrix, lengths if present is None else np.where(present, lengths, 0))


def messages(field: int, parts: Sequence[EncodedField]) -> list[EncodedField]:
    """A length-delimited field of these, as parts: its key, its length and its contents."""
    length: Ints = np.sum([part.lengths for part in parts], axis=0, dtype=np.int64)
    return [constant(key(field, _BYTES), length.size), varints(length), *parts]


def written(parts: Sequence[EncodedField]) -> bytes:
    """The bytes of all messages, one after the other."""
    matrix = np.concatenate([part.matrix for part in parts], axis=1)
    counts = [np.arange(part.matrix.shape[1]) < part.lengths[:, None] for part in parts]
    data: bytes = matrix[np.concatenate(counts, axis=1)].tobytes()
    return data
