"""Where is attention computed step by step: a product, a softmax in kernels of its own, a product? And of which size?

Recognised by what lies between two matrix multiplications on a stream: nothing but element-wise kernels, and a softmax
(one kernel, or `exp` and a sum). A loss has its softmax's gradient, or a logarithm, in the same stretch; a router
sorts.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.hardware.attention import Attention
from perfdoctor.metrics.kernels.chains import stream_order
from perfdoctor.metrics.work.flops import shapes_of, work_of_op
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import named
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names

#: Kernels that may lie between the two products of a gradient: a copy of each factor.
_MOST_BETWEEN_GRADIENTS = 2
#: Where the two factors stand among a batched product's inputs.
_FIRST_FACTOR = {"aten::bmm": 0, "aten::baddbmm": 1}


class AttentionPieces(Struct, frozen=True):
    """The attentions of a place; forward and backward pass of one count as two.

    `between`: which of `place.kernels` lie between the products. `number`: to which attention each kernel belongs,
    products included, UNKNOWN for none. `opening`, one an attention: the product in front of the softmax, as a row of
    `place.kernels`; `backward`: is it the gradient's?; `masked`: does a kernel of its apply a mask?
    """

    between: Mask
    number: Ints
    opening: Ints
    backward: Mask
    masked: Mask

    @property
    def count(self) -> int:
        return int(self.opening.size)


@once_per_place
def attentions(place: Place, at_most_kernels: float) -> AttentionPieces:
    """All attentions of a place whose products frame `at_most_kernels`. Products that ops name must be batched ones."""
    kernels, names = place.kernels, place.kernels.name
    nothing = np.empty(0, dtype=np.int64)
    none = AttentionPieces(
        np.zeros(len(kernels), dtype=bool), np.full(len(kernels), UNKNOWN, np.int64), nothing,
        nothing.astype(bool), nothing.astype(bool),
    )  # fmt: skip
    if not len(kernels) or not (names.matches(kernel_names.SOFTMAX) | names.matches(kernel_names.EXPONENTIAL)).any():
        return none
    # A kernel that reduces is the last step of a product that was split along its inner dimension.
    product = names.has(kernel_names.family, "gemm") & ~names.where(lambda name: "reduce" in name.lower())
    order = stream_order(place)
    stream = kernels["stream"][order]
    segment = np.cumsum(product[order] | np.r_[True, stream[1:] != stream[:-1]])
    between = ~product[order]

    def count(rows: Mask) -> Ints:
        return np.bincount(segment[rows[order] & between], minlength=int(segment[-1]) + 2)

    softmax, backward = names.matches(kernel_names.SOFTMAX), names.matches(kernel_names.SOFTMAX_BACKWARD)
    exponential, total = names.matches(kernel_names.EXPONENTIAL), names.matches(kernel_names.SUM)
    logarithm = names.matches(kernel_names.LOGARITHM)
    foreign = ~names.matches(kernel_names.WITH_SOFTMAX) | names.matches(kernel_names.NOT_WITH_SOFTMAX)
    one_softmax = (count(softmax & ~backward) + count(backward) == 1) | (
        (count(softmax) == 0) & (count(exponential) == 1) & (count(total) > 0)
    )
    whole = one_softmax & (count(logarithm) == 0) & (count(foreign) == 0)
    length = np.bincount(segment[between], minlength=whole.size)
    whole &= length <= at_most_kernels
    framed = np.zeros(whole.size, dtype=bool)  # a product before it, and another behind it on the same stream
    first = np.flatnonzero(np.r_[True, segment[1:] != segment[:-1]])
    opens = (product & _may_be_batched(place))[order[first]]
    follows = np.r_[opens[1:] & (stream[first[1:]] == stream[first[:-1]]), False]
    framed[segment[first]] = opens & follows
    found = np.flatnonzero((whole & framed)[segment[first]])
    if not found.size:
        return none
    number = none.number
    number[order[first[found]]] = number[order[first[found + 1]]] = np.arange(found.size)
    of_segment = np.full(whole.size, UNKNOWN, np.int64)
    of_segment[segment[first[found]]] = np.arange(found.size)
    inside = between & (of_segment[segment] != UNKNOWN)
    number[order[inside]] = of_segment[segment[inside]]
    is_backward = count(backward)[segment[first[found]]] > 0
    _add_other_products(number, order[first], found[is_backward], opens & follows, length[segment[first]])
    none.between[order[inside]] = True
    masked = count(names.matches(kernel_names.MASKS))[segment[first[found]]] > 0
    return AttentionPieces(none.between, number, order[first[found]], is_backward, masked)


def _may_be_batched(place: Place) -> Mask:
    """One bool a kernel: may it be a batched product? All may where no op is known."""
    kernels = launches_of(place, "kernels")
    by_batched = kernels.inside_of("ops", named(place.timeline, "ops", torch_names.BATCHED_MATMUL))
    may: Mask = by_batched | (kernels.enclosing("ops") == UNKNOWN)
    return may


def _add_other_products(number: Ints, opening: Ints, found: Ints, together: Mask, between: Ints) -> None:
    """Number the other gradient of each product: the one in front of the softmax's pair, and the one behind it.

    `opening`: the first row of each segment; `found`: the segments of gradients; `together`: does a segment begin with
    a batched product, and the next one as well?; `between`: how many kernels each segment has behind its product.
    """
    for at in found.tolist():
        own, before, behind = number[opening[at]], at - 1, at + 2
        others = []
        if before >= 0 and together[before] and between[before] <= _MOST_BETWEEN_GRADIENTS:
            others.append(opening[before])
        if behind < opening.size and together[at + 1] and between[at + 1] <= _MOST_BETWEEN_GRADIENTS:
            others.append(opening[behind])
        for row in others:
            if number[row] == UNKNOWN:
                number[row] = own


def sizes(place: Place, pieces: AttentionPieces) -> list[Attention | None]:
    """What each attention computes, by the shapes of the op that launched its opening product; None where unknown."""
    op = launches_of(place, "kernels").outermost("ops", named(place.timeline, "ops", torch_names.BATCHED_MATMUL))
    ops, half = place.timeline.ops, place.kernels.name.has(kernel_names.input_type, "half")
    shapes, types = ops.text("input_shapes"), ops.text("input_types")
    found: list[Attention | None] = []
    for row, backward in zip(pieces.opening.tolist(), pieces.backward.tolist(), strict=True):
        at, bits = int(op[row]), 16 if half[row] else 32
        found.append(_size(ops.name[at], shapes[at], types[at], backward, bits) if at != UNKNOWN else None)
    return found


def _size(op: str, shapes: str, types: str, backward: bool, bits: int) -> Attention | None:
    """The attention of a product of scores: their batch, rows and columns, and what is summed over.

    Where two of the three sizes agree, as they do where a sequence attends to itself, the third is the head's: the
    gradients' products come in any order.
    """
    factors = batched_product(op, shapes)
    if factors is None:
        return None
    batch, rows, columns, inner = factors
    if backward and rows != columns and inner in (rows, columns):
        inner, rows, columns = (rows if inner == columns else columns), inner, inner
    work = work_of_op(op, shapes, types, "")
    if work is not None and work.data_type:
        bits = {"fp16": 16, "bf16": 16}.get(work.data_type, 32)
    return Attention(batch, rows, columns, inner, backward, bits)


def batched_product(op: str, shapes: str) -> tuple[int, int, int, int] | None:
    """(batch, rows, columns, inner) of a batched product; None where its shapes were not recorded."""
    listed = shapes_of(shapes)
    first = _FIRST_FACTOR.get(op)
    factors = listed[first : first + 2] if first is not None else ()
    if len(factors) != 2 or any(len(each) != 3 for each in factors) or factors[0][2] != factors[1][1]:
        return None
    (batch, rows, inner), (_, _, columns) = factors
    return batch, rows, columns, inner
