"""Which kernels of one stream follow each other with nothing between them but what a compiler would fuse with them?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.kernels.optimizer import in_optimizer
from perfdoctor.metrics.kernels.sets import stream_order
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask
from perfdoctor.vocabulary.names import kernels as kernel_names


@dataclass(frozen=True)
class Chains:
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


def in_chains(chains: Chains) -> Mask:
    """One bool a kernel: is it a link?"""
    rows: Mask = chains.links > 0
    return rows
