"""Which kernels follow each other on a stream, and would become one: in a chain, as a cast, or with their like?

A compiler fuses a cast with an element-wise kernel, a norm or a reduction, and two casts with each other; a library's
matmul takes what lies in memory. What a kernel works on is not recorded: it is the same tensor if it takes about as
long. Per number a cast moves 6 bytes (4 and 2), such kernels 4 (two of 16 bits) to 12 (three of 32 bits).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.kernels.memory_bandwidth import passes_by_kernel
from perfdoctor.metrics.kernels.optimizer import in_optimizer
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Floats, Ints, Mask
from perfdoctor.vocabulary.names import kernels as kernel_names

#: Tensors: a norm reads one and writes one; what is not known to read one is taken to read two.
_OF_NORM, _OF_TWO = 2, 3


def stream_order(place: Place) -> Ints:
    """The rows of `place.kernels` stream by stream, each in the order in which they ran."""
    kernels = place.kernels
    return np.lexsort((kernels.start_ns, kernels["stream"])).astype(np.int64)


def merged_runs_ns(place: Place, rows: Mask, breaks: Mask) -> float:
    """What is saved, in ns for the window, if each run of these rows of `place.kernels` takes as long as its longest.

    Short kernels are start and end, whatever they compute. `breaks`: rows that begin a run of their own, and end it.
    """
    order = stream_order(place)
    if not order.size:
        return 0.0
    stream, chosen, alone = place.kernels["stream"][order], rows[order], breaks[order]
    begins = np.ones(order.size, dtype=bool)
    begins[1:] = ~chosen[1:] | ~chosen[:-1] | alone[1:] | alone[:-1] | (stream[1:] != stream[:-1])
    first = np.flatnonzero(begins)
    ns: Floats = np.where(chosen, place.kernel_ns[order], 0).astype(float)
    return float((np.add.reduceat(ns, first) - np.maximum.reduceat(ns, first)).sum())


class Chains(Struct, frozen=True):
    """`number` is each kernel's chain, UNKNOWN outside of any; `links` how many kernels that chain has (0 outside)."""

    number: Ints
    links: Ints


def elementwise_chains(place: Place, at_least_links: float, at_least_ns: float, besides: Mask) -> Chains:
    """Chains of kernels that each last `at_least_ns`; shorter ones and copies between them neither count nor break.

    `besides`: rows of `place.kernels` that belong to something else.
    """
    kernels = place.kernels
    chains = Chains(np.full(len(kernels), UNKNOWN, np.int64), np.zeros(len(kernels), np.int64))
    if not len(kernels):
        return chains
    names = kernels.name
    fusable = (
        names.matches(kernel_names.EAGER)
        & ~names.matches(kernel_names.NEVER_IN_CHAIN)
        & ~names.where(kernel_names.is_compiled)
        & ~in_optimizer(place)
        & ~besides
    )
    copy = names.matches(kernel_names.COPY)
    link = fusable & ~copy & (kernels.duration_ns >= at_least_ns)
    order = stream_order(place)
    order = order[(link | ~(fusable | copy))[order]]  # what is left out lies between links without breaking them
    # The same kernel twice in a row is more often a loop over tensors than a chain: the second is left out.
    name, stream = names.codes[order], kernels["stream"][order]
    again = np.zeros(order.size, dtype=bool)
    again[1:] = link[order[1:]] & (name[1:] == name[:-1]) & (stream[1:] == stream[:-1])
    order = order[~again]
    stream, is_link = kernels["stream"][order], link[order]
    begins = np.ones(order.size, dtype=bool)
    begins[1:] = ~is_link[1:] | ~is_link[:-1] | (stream[1:] != stream[:-1])
    run = np.cumsum(begins) - 1
    length = np.bincount(run)[run]
    long_enough = is_link & (length >= at_least_links)
    chains.number[order[long_enough]] = run[long_enough]
    chains.links[order[long_enough]] = length[long_enough]
    return chains


def saved_shares(place: Place, chains: Chains, case: str) -> Floats:
    """The share of its time that each link loses when its chain becomes one kernel, by `savings.CASES`; 0 outside.

    A kernel bound by memory takes as long as its passes over tensors. Fused, the result of a link is not written for
    the next one to read: all but the first lose a read, all but the last a write. At the least, what is written is
    needed for the gradients; at the most, a link between two others loses its other inputs as well.
    """
    linked = np.flatnonzero(chains.links > 0)
    order = linked[np.lexsort((place.kernels.start_ns[linked], chains.number[linked]))]
    number, shares = chains.number[order], np.zeros(len(place.kernels))
    first, last = np.ones(order.size, dtype=bool), np.ones(order.size, dtype=bool)
    first[1:] = last[:-1] = number[1:] != number[:-1]
    writes = ~place.kernel_rows("reduction")[order] & ~last
    lost = (~first).astype(float) + (writes if case != "low" else 0)
    share = np.minimum(lost / passes(place)[order], 1.0)
    shares[order] = np.where(~first & ~last, 1.0, share) if case == "high" else share
    return shares


@once_per_place
def passes(place: Place) -> Floats:
    """The number of tensors over which each of `place.kernels` passes, by its op's shapes, its name or its kind.

    PyTorch's element-wise kernels name how many they take. One that is smaller than the result counts as much less.
    """
    by_name = place.kernels.name.numbers(kernel_names.tensors_of_elementwise)
    by_kind = np.where(place.kernel_rows("normalization"), _OF_NORM, _OF_TWO)
    by_kind = np.where(place.kernel_rows("reduction"), 1, by_kind)
    known = passes_by_kernel(place)
    return np.where(known > 0, known, np.where(by_name > 0, by_name, by_kind)).astype(float)


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
    return (other_ns >= _LEAST * cast_ns) & (other_ns <= _MOST * cast_ns)
