"""Which kernels did forward work a second time, inside the backward pass?

Activation checkpointing runs the forward functions again when the backward pass needs what they had made. A gradient
never calls the functions that a model is written with (`aten::conv2d`, `aten::layer_norm`): it has ops of its own.
Where they occur inside a node of the backward pass, the forward pass runs again, from the first of them to the last.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.kernels.sets import launching_rows
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Frame, Mask
from perfdoctor.vocabulary.names import torch as torch_names


def recomputed(place: Place) -> Mask:
    """One bool a row of `place.kernels`: was it launched by forward work inside the backward pass?"""
    again = forward_again(place)
    if not len(again):
        return np.zeros(len(place.kernels), dtype=bool)
    return launching_rows(place, again)[0] >= 0


def forward_again(place: Place) -> Frame:
    """When the forward pass ran inside the backward pass: one row a node in which it did, on its thread.

    The node that started last counts: a checkpoint inside another one has a node of its own.
    """
    ops = place.timeline.ops.of(rank=place.rank)
    nodes, forward = (
        ops.take(ops.name.matches(torch_names.EVALUATED_NODE)),
        # In a node that also runs a function of the forward pass alone, `linear` is forward work, too.
        ops.take(ops.name.matches(torch_names.FORWARD_ONLY) | ops.name.matches(torch_names.LINEAR)),
    )
    node = np.full(len(forward), UNKNOWN, dtype=np.int64)
    for process, thread in sorted(set(zip(nodes["process"].tolist(), nodes["thread"].tolist(), strict=True))):
        of_thread = np.flatnonzero((nodes["process"] == process) & (nodes["thread"] == thread))
        work = np.flatnonzero((forward["process"] == process) & (forward["thread"] == thread))
        at = np.searchsorted(nodes.start_ns[of_thread], forward.start_ns[work], side="right") - 1
        candidate = of_thread[np.maximum(at, 0)]
        inside = (at >= 0) & (forward.end_ns[work] <= nodes.end_ns[candidate])
        node[work] = np.where(inside, candidate, UNKNOWN)
    node[~np.isin(node, node[forward.name.matches(torch_names.FORWARD_ONLY)])] = UNKNOWN
    which, position = np.unique(node[node != UNKNOWN], return_inverse=True)
    start, end = nodes.end_ns[which].copy(), nodes.start_ns[which].copy()
    np.minimum.at(start, position, forward.start_ns[node != UNKNOWN])
    np.maximum.at(end, position, forward.end_ns[node != UNKNOWN])
    return nodes.take(which).with_columns(start_ns=start, end_ns=end).sorted()
