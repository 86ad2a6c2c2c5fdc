"""How do other programs get a frame's columns without a copy? As an Arrow stream of one batch, made by nanoarrow.

The PyCapsule protocol of Arrow (arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html), which Polars,
pyarrow, DuckDB, pandas and others read. Numbers and codes of texts are numpy's own memory; only flags, which Arrow
packs into bits, and each different text once are written anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import nanoarrow
import numpy as np
from nanoarrow.c_array import CArrayBuilder
from nanoarrow.device import cpu

from perfdoctor.model.columns import Column, Text

_UNCHECKED = "none"  # buffers are as long as the rows: numpy says so


def stream(columns: Mapping[str, Column]) -> object:
    """A capsule `arrow_array_stream` of one batch: int64, double, bool; texts are dictionary<int32, large_string>."""
    arrays = {name: _array(column) for name, column in columns.items()}
    rows = len(next(iter(columns.values()))) if columns else 0
    batch = nanoarrow.c_array_from_buffers(
        nanoarrow.struct({name: array.schema for name, array in arrays.items()}),
        rows,
        [None],
        null_count=0,
        children=list(arrays.values()),
        validation_level=_UNCHECKED,
        move=True,
    )
    return nanoarrow.c_array_stream(batch).__arrow_c_stream__()


def _array(column: Column) -> Any:
    """The column as an Arrow array; flags are packed into bits."""
    if isinstance(column, Text):
        return _texts(column)
    values: np.ndarray[Any, Any] = column
    if values.dtype == np.bool_:
        kind, values = nanoarrow.bool_(), np.packbits(values, bitorder="little")
    else:
        kind = nanoarrow.float64() if values.dtype == np.float64 else nanoarrow.int64()
    # A column that holds one number in all rows takes the memory of one: Arrow has no such array.
    data = np.ascontiguousarray(values)
    return nanoarrow.c_array_from_buffers(
        kind, len(column), [None, data], null_count=0, validation_level=_UNCHECKED, move=True
    )


def _texts(column: Text) -> Any:
    """Codes into a table of the different values. `c_array_from_buffers` makes no dictionaries, its builder does."""
    different = column.mapped(str)  # after a merge a value may stand there twice
    builder = CArrayBuilder.allocate()
    builder.init_from_schema(nanoarrow.c_schema(nanoarrow.dictionary(nanoarrow.int32(), nanoarrow.large_string())))
    array = _filled(builder, [np.ascontiguousarray(different.codes)], len(column))
    values = [value.encode("utf-8", "replace") for value in different.values]
    ends = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
    _filled(CArrayBuilder(array.dictionary, cpu()), [ends, b"".join(values)], len(values))
    return array


def _filled(builder: Any, buffers: list[Any], length: int) -> Any:
    """The builder's array of `length` rows with these buffers behind that of its nulls, of which there are none."""
    for place, buffer in enumerate(buffers, start=1):
        builder.set_buffer(place, nanoarrow.c_buffer(buffer))
    builder.set_length(length)
    builder.set_null_count(0)
    return builder.finish(validation_level=_UNCHECKED)
