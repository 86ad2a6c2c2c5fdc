"""Where is attention computed step by step: a product, a softmax in kernels of its own, a product?

Recognised by what lies between two matrix multiplications on a stream: nothing but element-wise kernels, and a softmax
(one kernel, or `exp` and a sum). A loss has its softmax's gradient, or a logarithm, in the same stretch; a router
sorts.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.kernels.sets import stream_order
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import named
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names


@once_per_place
def attention_pieces(place: Place, at_most_kernels: float) -> tuple[Mask, int]:
    """Which of `place.kernels` lie between the two products of an attention, and how many attentions these are.

    Forward and backward pass each count as one. Products that ops name must be batched ones.
    """
    kernels, names = place.kernels, place.kernels.name
    found = np.zeros(len(kernels), dtype=bool)
    if not len(kernels) or not (names.matches(kernel_names.SOFTMAX) | names.matches(kernel_names.EXPONENTIAL)).any():
        return found, 0
    product = names.has(kernel_names.family, "gemm") & ~names.where(_only_adds_up)
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
    whole &= np.bincount(segment[between], minlength=whole.size) <= at_most_kernels
    framed = np.zeros(whole.size, dtype=bool)  # a product before it, and another behind it on the same stream
    first = np.flatnonzero(np.r_[True, segment[1:] != segment[:-1]])
    opens = product[order[first]] & _batched(place)[order[first]]
    follows = np.r_[opens[1:] & (stream[first[1:]] == stream[first[:-1]]), False]
    framed[segment[first]] = opens & follows
    inside = between & (whole & framed)[segment]
    found[order[inside]] = True
    return found, int(np.unique(segment[inside]).size)


def _only_adds_up(name: str) -> bool:
    """The last step of a product that was split along its inner dimension."""
    return "reduce" in name.lower()


def _batched(place: Place) -> Mask:
    """May this kernel be a batched product? All may where no op is known."""
    kernels = launches_of(place, "kernels")
    by_batched = kernels.inside_of("ops", named(place.timeline, "ops", torch_names.BATCHED_MATMUL))
    may: Mask = by_batched | (kernels.enclosing("ops") == UNKNOWN)
    return may
