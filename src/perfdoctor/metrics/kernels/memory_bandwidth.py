"""How near to the peak bandwidth of its memory does the device run kernels that do little but read and write?

A kernel reads each input and writes its result at least once. Where shapes and types of its op were recorded, that
many bytes over its time is a rate that it reached at the least. Of ops whose result size does not follow from their
inputs, and of those that took more than one kernel, nothing is said.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from math import prod

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.grouping import combined
from perfdoctor.metrics.work.device_peaks import peaks
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import BEYOND
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Floats, Mask

FAMILIES = ("elementwise", "normalization", "reduction")
#: How many tensors an op reads; its result has the size of the largest. One more in a recording is `out=`.
_READS = {
    **dict.fromkeys(
        ("gelu", "silu", "relu", "clamp", "clamp_min", "neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal",
         "tanh", "sigmoid", "sin", "cos", "leaky_relu", "hardtanh", "hardswish", "elu", "softplus", "pow",
         "native_dropout", "native_layer_norm", "native_group_norm", "_softmax", "_log_softmax"), 1,
    ),
    **dict.fromkeys(
        ("add", "sub", "mul", "div", "maximum", "minimum", "threshold_backward", "gelu_backward", "silu_backward",
         "sigmoid_backward", "tanh_backward", "leaky_relu_backward", "hardtanh_backward", "hardswish_backward",
         "elu_backward", "native_dropout_backward", "masked_fill", "_softmax_backward_data",
         "_log_softmax_backward_data"), 2,
    ),
    "addcmul": 3, "addcdiv": 3, "lerp": 2,
}  # fmt: skip
#: A copy has its target among its inputs; a fill reads nothing.
_COPY, _FILLS = "copy_", ("fill_", "zero_")
_BYTES_PER_ELEMENT = {
    "double": 8, "long int": 8, "long": 8, "c10::complex<float>": 8, "float": 4, "int": 4, "c10::half": 2,
    "c10::bfloat16": 2, "short": 2, "short int": 2, "bool": 1, "unsigned char": 1, "signed char": 1, "char": 1,
    "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1,
}  # fmt: skip


#: Of the peak: what passes over its numbers faster than this read them from a cache, or read fewer than its shapes say.
#: Also the threshold `faster_than_memory` of memory-bound-kernels.
MOST_OF_PEAK = 1.05


class Rates(Struct, frozen=True):
    """One value for each of a place's kernels: bytes that it moves at the least, and their rate as a share of the peak.

    0 where it is not known.
    """

    moved_bytes: Floats
    share_of_peak: Floats
    peak_bytes_per_second: float

    def near(self, at_least: float, at_most: float, at_least_bytes: float) -> Mask:
        """One bool a kernel: is it at the limit of the memory? What is faster than `at_most` read from a cache."""
        rows: Mask = self.moved_bytes >= at_least_bytes
        return rows & (self.share_of_peak >= at_least) & (self.share_of_peak <= at_most)


@once_per_place
def rates(place: Place) -> Rates:
    """The rates of kernels that are the only one of their op."""
    limits = peaks(place)
    if limits is None or not limits.memory_bytes_per_second:
        nothing = np.zeros(len(place.kernels))
        return Rates(nothing, nothing.copy(), 0.0)
    moved = moved_by_kernel(place)
    seconds = np.maximum(place.kernels.duration_ns, 1) / 1e9
    return Rates(moved, moved / seconds / limits.memory_bytes_per_second, limits.memory_bytes_per_second)


def moved_by_kernel(place: Place) -> Floats:
    """Bytes that each of `place.kernels` moves at the least; 0 where they are not known."""
    return _by_kernel(place, moved_bytes)


def passes_by_kernel(place: Place) -> Floats:
    """The number of tensors over which each kernel passes, in sizes of its result; 0 where it is not known."""
    return _by_kernel(place, _passes)


def _by_kernel(place: Place, of_op: Callable[[str, str, str], float]) -> Floats:
    """A number of each kernel that is the only one of an op whose tensors are known; 0 for others."""
    kernels = place.kernels
    moved = np.zeros(len(kernels))
    if not len(kernels):
        return moved
    ops = place.timeline.ops
    op = launches_of(place, "kernels").outermost("ops", ops.name.where(_is_known))
    many = np.bincount(op[op != UNKNOWN], minlength=len(ops))
    known = np.flatnonzero((op != UNKNOWN) & place.kernel_rows(*FAMILIES))
    known = known[many[op[known]] == 1]
    shapes, types = ops.text("input_shapes"), ops.text("input_types")
    which, first = combined(*(text.codes[op[known]] for text in (ops.name, shapes, types)))
    sizes = [of_op(ops.name[row], shapes[row], types[row]) for row in op[known[first]].tolist()]
    moved[known] = np.array([*sizes, 0], dtype=float)[which]
    return moved


def _is_known(name: str) -> bool:
    plain = name.removeprefix("aten::")
    return plain != name and (plain in (_COPY, *_FILLS) or plain.removesuffix("_") in _READS)


@lru_cache(maxsize=65536)
def moved_bytes(op: str, shapes: str, types: str) -> int:
    """The bytes that the op reads and writes at the least; 0 where that is not recorded."""
    if not _is_known(op):
        return 0
    try:
        tensors = [tensor_bytes(shape, kind) for shape, kind in zip(json.loads(shapes), json.loads(types), strict=True)]
    except (ValueError, TypeError):
        return 0
    name, sizes = op.removeprefix("aten::"), [size for size in tensors if size]
    if name in _FILLS:
        return max(sizes[:1], default=0)
    if name == _COPY:
        return sum(sizes) if len(sizes) == 2 else 0
    read = sizes[: _READS[name.removesuffix("_")]]
    return sum(read) + max(read, default=0)


def tensor_bytes(shape: object, kind: object) -> int:
    """Bytes of one input; 0 for a number, for what is no tensor of a known type, and for more than any memory holds."""
    size = _BYTES_PER_ELEMENT.get(str(kind).lower(), 0)
    if not isinstance(shape, list) or not shape or not all(isinstance(side, int) for side in shape):
        return 0
    carried = prod(shape) * size
    return carried if 0 <= carried < BEYOND else 0


def _passes(op: str, shapes: str, types: str) -> float:
    """Bytes that the op moves over those of its result: the largest that it reads, or one of two where it copies."""
    moved = moved_bytes(op, shapes, types)
    name = op.removeprefix("aten::")
    reads = 0 if name in _FILLS else 1 if name == _COPY else _READS.get(name.removesuffix("_"), 1)
    if not moved or reads <= 1:
        return float(reads + 1) if moved else 0.0
    sizes = [size for size in map(tensor_bytes, json.loads(shapes), json.loads(types)) if size][:reads]
    return moved / max(sizes)
