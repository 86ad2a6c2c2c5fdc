"""What do collectives carry where the profiler says nothing of it beside their kernels?

Before torch 2.2 it does not. With `record_shapes=True` the range that PyTorch opens around each call of the library
has the sizes and type of what it is given: `nccl:all_reduce`, Input Dims [[366336]], Input type ["float"].
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod

import msgspec
import numpy as np

from perfdoctor.model.timeline import UNKNOWN, Frame, Text
from perfdoctor.readers.collective_kinds import range_at_launch

#: Kinds whose result is no larger than what they are given.
_NO_LARGER = ("all_reduce", "reduce_scatter", "all_to_all", "broadcast", "reduce")
#: The names of types in C++ that differ from those in Python.
_TYPES = {"long int": "Long", "unsigned char": "Byte", "signed char": "Char", "short int": "Short"}


def completed(rows: Frame, calls: Frame, ranges: Frame, element_bytes: Mapping[str, int]) -> Frame:
    """The collectives with type, `sent_bytes` and `bytes` where these were unknown.

    `ranges`: those around calls of the library, with `input_shapes` and `input_types`. Of an all-gather whose group is
    of unknown size the bytes stay unknown: its result is larger than what it is given.
    """
    at = range_at_launch(rows, calls, ranges)
    wanted = np.flatnonzero((rows["sent_bytes"] == UNKNOWN) & (at != UNKNOWN))
    if not wanted.size:
        return rows
    shapes, types = ranges.text("input_shapes").take(at[wanted]), ranges.text("input_types").take(at[wanted])
    given = [_given(shape, kind) for shape, kind in zip(shapes, types, strict=True)]
    known = list(rows.text("data_type"))
    sent, carried = rows["sent_bytes"].copy(), rows["bytes"].copy()
    kinds = rows.text("kind")
    for row, (kind, elements) in zip(wanted.tolist(), given, strict=True):
        size = element_bytes.get(kind.lower(), 0)
        if size and elements:
            known[row] = known[row] or kind
            sent[row] = elements * size
            if kinds[row] in _NO_LARGER:
                carried[row] = max(carried[row], sent[row])
    return rows.with_columns(data_type=Text.of(known), sent_bytes=sent, bytes=carried)


@lru_cache(maxsize=4096)
def _given(shapes: str, types: str) -> tuple[str, int]:
    """The type of the tensors, as torch names it, and their elements; ("", 0) where they are not known."""
    try:
        sizes = msgspec.json.decode(shapes, type=list[list[int]])
        kinds = msgspec.json.decode(types, type=list[str])
    except msgspec.MsgspecError:
        return "", 0
    if len(sizes) != len(kinds) or len(set(kinds)) != 1:
        return "", 0
    kind = _TYPES.get(kinds[0], kinds[0].removeprefix("c10::").capitalize() if kinds[0].islower() else "")
    return kind or kinds[0].removeprefix("c10::"), sum(prod(each) for each in sizes)
