"""Which fields does a protobuf message hold? Read without its schema, as the wire format has them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

#: What a field holds: a whole number, a float, or bytes (a text or a message).
Value = int | float | bytes

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: A whole number has no more bytes.
LONGEST_VARINT = 10


def fields(message: Value) -> Iterator[tuple[int, Value]]:
    """Number and value of each field of a message.

    Raises ValueError where it is none, and ValueError, IndexError or struct.error where it breaks off.
    """
    if not isinstance(message, bytes):
        raise ValueError("a number where a message belongs")  # noqa: TRY004 the file's fault, not the caller's
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            number, at = varint(message, at)
            yield key >> 3, number
        elif kind == _FIXED64:
            yield key >> 3, _DOUBLE.unpack_from(message, at)[0]
            at += 8
        elif kind == _FIXED32:
            yield key >> 3, _FLOAT.unpack_from(message, at)[0]
            at += 4
        elif kind == _BYTES:
            length, at = varint(message, at)
            if at + length > len(message):
                raise ValueError("a field breaks off")
            yield key >> 3, message[at : at + length]
            at += length
        else:
            raise ValueError(f"a field of unknown kind {kind}")


def varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends: seven bits a byte, the lowest first; the highest is set if more follow."""
    value = message[at]
    if value < 0x80:  # by far the most
        return value, at + 1
    value = 0
    for place in range(LONGEST_VARINT):
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number that does not end")
