"""How many FLOP does one op do, going by the shapes of its inputs?

A multiplication and an addition count as two; sums of a bias, a softmax and everything element by element count as
nothing, as the field does it. The numbers are those of `torch.utils.flop_counter`, in two places beside: with groups it
counts the gradient of a convolution's weight as often again as there are groups, and 4-bit numbers that are packed in
pairs as one. What does not follow from a recording is None: never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod

from msgspec import Struct

from perfdoctor.metrics.work import flops_attention, flops_convolution

#: The type of a tensor's numbers as Kineto writes it, and how a matrix product of them is called.
_DATA_TYPES = {
    "double": "fp64", "float": "fp32", "c10::half": "fp16", "c10::bfloat16": "bf16", "c10::float8_e4m3fn": "fp8",
    "c10::float8_e5m2": "fp8", "c10::float8_e4m3fnuz": "fp8", "c10::float8_e5m2fnuz": "fp8", "signed char": "int8",
    "c10::float4_e2m1fn_x2": "fp4",
}  # fmt: skip
_BITS = {"fp64": 64, "fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "fp4": 4}

Shape = tuple[int, ...]


class OpFlop(Struct, frozen=True):
    """What one op computes. `data_type`: one of `hardware.peaks.DATA_TYPES` ("fp32" may run as TF32), "" if unknown.

    `flop`: by the field's convention, in which a causal mask changes nothing. `model_flop`: those of them that a model
    asks for, without the scores that a fused attention computes again for its gradient. `needed_flop`: what a kernel
    that skips the masked half must do; None where it is unknown whether there is a mask. `moved_bytes`: each factor
    read and each result written once, None where types are unknown: a kernel moves at least that.
    `results`: how many numbers are written, of a product of two matrices.
    """

    flop: int
    model_flop: int
    needed_flop: int | None
    moved_bytes: int | None
    data_type: str
    results: int | None = None


def _matrices(first: Shape, second: Shape) -> tuple[int, int] | None:
    """(FLOP, numbers read and written) of a product of two matrices, or of two stacks of them."""
    if len(first) != len(second) or len(first) not in (2, 3) or first[:-2] != second[:-2] or first[-1] != second[-2]:
        return None
    batch, rows, inner, columns = prod(first[:-2]), first[-2], first[-1], second[-1]
    return 2 * batch * rows * inner * columns, batch * (rows * inner + inner * columns + rows * columns)


def _grouped(first: Shape, second: Shape) -> tuple[int, int] | None:
    """(FLOP, numbers read and written) of `_grouped_mm`: groups of rows, each with a matrix of its own.

    Where groups end is not recorded.
    """
    if len(first) == 2 and len(second) == 3 and first[1] == second[1]:
        return 2 * prod(first) * second[2], prod(first) + prod(second) + first[0] * second[2]
    if len(first) == 3 and len(second) == 2 and first[2] == second[0]:
        return 2 * prod(second) * first[1], prod(first) + prod(second) + first[1] * second[1]
    if len(first) == 2 and len(second) == 2:  # the groups divide what is summed over
        return (2 * first[0] * prod(second), prod(first) + prod(second)) if first[1] == second[0] else None
    return _matrices(first, second)


_Product = Callable[[Shape, Shape], "tuple[int, int] | None"]
#: The function for an op's product, and where its first factor stands among the inputs.
_PRODUCTS: dict[str, tuple[_Product, int]] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_int_mm"), (_matrices, 0)),
    **dict.fromkeys(("aten::_scaled_mm", "aten::_scaled_mm_v2"), (_matrices, 0)),
    **dict.fromkeys(("aten::addmm", "aten::addmm_", "aten::_addmm_activation"), (_matrices, 1)),
    **dict.fromkeys(("aten::baddbmm", "aten::baddbmm_"), (_matrices, 1)),
    **dict.fromkeys(("aten::_grouped_mm", "aten::_scaled_grouped_mm"), (_grouped, 0)),
}  # fmt: skip


@lru_cache(maxsize=65536)
def is_counted(op: str) -> bool:
    """Is it an op that multiplies matrices, and that is counted as a whole, the ops that it calls included?"""
    return op in _PRODUCTS or flops_convolution.is_convolution(op) or flops_attention.is_attention(op)


@lru_cache(maxsize=65536)
def work_of_op(op: str, shapes: str, types: str, values: str) -> OpFlop | None:
    """The work of one op by its inputs' shapes, types and values as recorded; None where these were not."""
    dimensions, kinds, settings = shapes_of(shapes), _texts(types), _texts(values)
    if op in _PRODUCTS:
        return _product(op, dimensions, kinds)
    data_type = _data_type(kinds, 0)
    if data_type is None:
        return None
    counted = (flops_convolution if flops_convolution.is_convolution(op) else flops_attention).count(
        op, dimensions, settings
    )
    if counted is None:
        return None
    flop, model, needed, numbers = counted
    return OpFlop(flop, model, needed, _bytes(numbers, data_type), data_type)


def _product(op: str, dimensions: Sequence[Shape], kinds: Sequence[str]) -> OpFlop | None:
    of_shapes, first = _PRODUCTS[op]
    data_type = _data_type(kinds, first)
    found = of_shapes(*dimensions[first : first + 2]) if len(dimensions) >= first + 2 else None
    if found is None or data_type is None:
        return None
    flop, numbers = found
    if data_type == "fp4":  # two numbers in each element of what is summed over, and in no other
        flop, numbers = 2 * flop, 2 * numbers
    results = prod(dimensions[first][:-1]) * dimensions[first + 1][-1] if of_shapes is _matrices else None
    return OpFlop(flop, flop, flop, _bytes(numbers, data_type), data_type, results)


def _bytes(numbers: int, data_type: str) -> int | None:
    return numbers * _BITS[data_type] // 8 if data_type else None


def _data_type(kinds: Sequence[str], place: int) -> str | None:
    """The type of the input there, "" where it was not recorded; None for complex numbers, whose products cost more."""
    kind = kinds[place].casefold() if place < len(kinds) else ""
    return None if "complex" in kind else _DATA_TYPES.get(kind, "")


@lru_cache(maxsize=65536)
def shapes_of(text: str) -> tuple[Shape, ...]:
    """The shape of each input; () of a number, and of a list of tensors."""
    return tuple(
        tuple(shape) if isinstance(shape, list) and all(type(side) is int and side >= 0 for side in shape) else ()
        for shape in _list(text)
    )


@lru_cache(maxsize=65536)
def _texts(text: str) -> tuple[str, ...]:
    return tuple(str(each) for each in _list(text))


def _list(text: str) -> list[object]:
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []
