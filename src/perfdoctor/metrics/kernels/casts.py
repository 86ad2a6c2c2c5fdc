"""Which casts can become part of the kernel that writes their input, or reads their result?

A compiler fuses a cast with an element-wise kernel, a norm or a reduction, and two casts with each other; a library's
matmul takes what lies in memory. What a kernel works on is not recorded: it is the same tensor if it takes about as
long. Per number a cast moves 6 bytes (4 and 2), such kernels 4 (two of 16 bits) to 12 (three of 32 bits).
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.kernels.sets import stream_order
from perfdoctor.model.columns import Floats, Ints, Mask
from perfdoctor.model.place import Place
from perfdoctor.vocabulary.names import kernels as kernel_names

#: Bytes a number of a neighbour over those of a cast, at the least and at the most, and a tenth for what times vary.
_LEAST, _MOST = 0.9 * 4 / 6, 1.1 * 12 / 6


def fused_casts(place: Place, casts: Mask, *, both_sides: bool) -> Mask:
    """Which of these rows of `place.kernels` have on a side, or on both, a kernel that a compiler would fuse them with?

    That is the nearest kernel before or behind on its stream that casts nothing. A cast of another kind right before it
    is as good as both.
    """
    order = stream_order(place)
    names, stream, ns = place.kernels.name, place.kernels["stream"][order], place.kernel_ns[order].astype(float)
    own, cast = casts[order], names.matches(kernel_names.CAST)[order]
    fuses = (names.matches(kernel_names.EAGER) & ~names.where(kernel_names.is_compiled))[order] & ~cast
    at = np.arange(order.size)
    before = np.maximum.accumulate(np.where(cast, -1, at))
    behind = np.minimum.accumulate(np.where(cast, order.size, at)[::-1])[::-1]

    def fusable(other: Ints) -> Mask:
        inside = (other >= 0) & (other < order.size)
        there = np.clip(other, 0, max(order.size - 1, 0))
        alike: Mask = _alike(ns[there], ns) & fuses[there] & (stream[there] == stream)
        return inside & alike

    first, second = fusable(before), fusable(behind)
    found = first & second if both_sides else first | second
    pair = np.zeros(order.size, dtype=bool)
    code = names.codes[order]
    pair[1:] = cast[1:] & cast[:-1] & (stream[1:] == stream[:-1]) & (code[1:] != code[:-1])
    pair[1:] &= _alike(ns[:-1], ns[1:])
    rows = np.zeros(order.size, dtype=bool)
    rows[order] = own & (found | pair)
    return rows


def _alike(other_ns: Floats, cast_ns: Floats) -> Mask:
    same: Mask = (other_ns >= _LEAST * cast_ns) & (other_ns <= _MOST * cast_ns)
    return same
