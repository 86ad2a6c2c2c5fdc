"""Which kernels did forward work a second time, inside the backward pass?

Activation checkpointing runs the forward functions again when the backward pass needs what they had made. A gradient
never calls the functions that a model is written with (`aten::conv2d`, `aten::layer_norm`): it has ops of its own.
Where they occur inside a node of the backward pass, the forward pass runs again, from the first of them to the last.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.cache import once_per_place, once_per_timeline
from perfdoctor.model.host_rows import Nested, named, nested, nested_rows
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Mask, Timeline
from perfdoctor.vocabulary.names import torch as torch_names


@once_per_place
def recomputed(place: Place) -> Mask:
    """One bool a row of `place.kernels`: was it launched by forward work inside the backward pass?"""
    rows: Mask = launches_of(place, "kernels").inside(forward_again(place.timeline, place.rank)) != UNKNOWN
    return rows


@once_per_timeline
def forward_again(timeline: Timeline, rank: int) -> Nested:
    """When the forward pass ran inside the backward pass: one row a node in which it did, on its thread.

    The innermost node counts: a checkpoint inside another one has a node of its own.
    """
    ops = nested_rows(timeline, rank, "ops")
    is_node, is_forward, is_linear = (
        named(timeline, "ops", names)[ops.numbers]
        for names in (torch_names.EVALUATED_NODE, torch_names.FORWARD_ONLY, torch_names.LINEAR)
    )
    # In a node that also runs a function of the forward pass alone, `linear` is forward work, too.
    forward = np.flatnonzero(is_forward | is_linear)
    node = ops.innermost_of(is_node)[forward]
    inside = np.isin(node, node[is_forward[forward]]) & (node != UNKNOWN)
    forward, node = forward[inside], node[inside]
    which, position = np.unique(node, return_inverse=True)
    start, end = ops.rows.end_ns[which], ops.rows.start_ns[which]
    np.minimum.at(start, position, ops.rows.start_ns[forward])
    np.maximum.at(end, position, ops.rows.end_ns[forward])
    return nested(ops.rows.take(which).with_columns(start_ns=start, end_ns=end).sorted())


def kept_bytes(place: Place) -> float | None:
    """The bytes that a step would hold besides if nothing were computed again: the rise of the allocator's total.

    Each stretch of forward work leaves the activations that its gradients read; without checkpoints all of them are
    held at once. None where the allocator's totals were not recorded.
    """
    totals = place.timeline["memory_totals"].of(rank=place.rank, device=place.device or 0)
    again = forward_again(place.timeline, place.rank).rows
    if len(totals) < 2 or not len(again):
        return None
    held, at = totals["allocated_bytes"], totals.start_ns
    before, after = (np.searchsorted(at, edge, side="right") - 1 for edge in (again.start_ns, again.end_ns))
    inside = (before >= 0) & (place.window.overlap_ns(again.start_ns, again.end_ns) > 0)
    rise = held[after[inside]] - held[before[inside]]
    return float(np.maximum(rise, 0).sum()) / place.units if inside.any() else None
