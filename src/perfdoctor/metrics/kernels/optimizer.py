"""What updates the parameters and sets gradients to zero? Kernels of the optimizer's step; without a GPU, its ops."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.kernels.fused_update import passes_of
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import named, outermost
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import Launches, launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Frame, Mask
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names


class HostOps(Struct, frozen=True):
    """`count` outermost ops, which take `total_ns` by themselves; `time`: with the Python around or between them."""

    count: int
    total_ns: int
    time: Intervals


@once_per_place
def in_optimizer(place: Place) -> Mask:
    """One bool a row of `place.kernels`: was it launched inside an optimizer's step?"""
    return launches_of(place, "kernels").while_open(torch_names.OPTIMIZER_RANGE, "ranges", "ops")


def fusible(place: Place) -> Mask:
    """One bool a row: was it launched by an optimizer of which one call could update many tensors?"""
    return in_optimizer(place) & ~launches_of(place, "kernels").while_open(torch_names.ONLY_PER_TENSOR, "ranges", "ops")


def is_fused(place: Place) -> Mask:
    """One bool a row: does one launch update many tensors, or do all of the update of one?"""
    return place.kernels.name.matches(kernel_names.FUSED_UPDATE)


class HostUpdateRows(Struct, frozen=True):
    """`ops`: the outermost ops of single tensors inside the optimizer's steps; `time`: theirs and their Python's."""

    ops: Frame
    time: Intervals


@once_per_place
def host_update_rows(place: HostPlace) -> HostUpdateRows:
    """The ops by which the training thread updates tensor by tensor, inside the optimizer's steps.

    A step that runs a backward pass (LBFGS calls its closure) is no update, and of optimizers that have no other way
    there is nothing to say. On a processor the multi-tensor ops are
    loops: they call an op for each tensor, and those count where a fused implementation is known.
    """
    ops = place.rows("ops")
    frames = (place.rows("ranges"), ops)
    marks = [rows.named(torch_names.OPTIMIZER_RANGE) for rows in frames]
    # The fused update of a processor counts the steps of each tensor by an op, besides.
    fused = ops.named(torch_names.FUSED_UPDATE).intervals
    marks = [rows.take(fused.overlap_ns(rows.start_ns, rows.end_ns) == 0) for rows in marks]
    updating = Intervals.union(rows.intervals for rows in marks)
    backward = ops.named(torch_names.AUTOGRAD_NODE)
    with_closure = updating.overlap_ns(backward.start_ns, backward.end_ns).any()
    if not updating or with_closure:
        return HostUpdateRows(ops.take(np.zeros(len(ops), dtype=bool)), Intervals.empty())
    only_per_tensor = Intervals.union(rows.named(torch_names.ONLY_PER_TENSOR).intervals for rows in frames)
    updating = (updating & place.window) - only_per_tensor
    inner = ops.take(~ops.name.matches(torch_names.OPTIMIZER_RANGE))
    inner = inner.take(updating.overlap_ns(inner.start_ns, inner.end_ns) > 0)
    passes = passes_of(place)
    many = inner.name.matches(torch_names.MULTI_TENSOR) & (passes is not None and passes.fuses)
    called = inner.take(~many).intervals
    loops = many.copy()
    loops[many] = called.overlap_ns(inner.start_ns[many], inner.end_ns[many]) > 0
    inner = outermost(inner.take(~loops))
    others = inner.name.matches(torch_names.NOT_PER_TENSOR)
    return HostUpdateRows(inner.take(~others), updating - inner.take(others).intervals)


def host_updates(place: HostPlace) -> HostOps:
    """How many ops update tensor by tensor; the Python around them counts as theirs, also in `total_ns`."""
    found = host_update_rows(place)
    return HostOps(len(found.ops), found.time.total_ns, found.time)


def filled_by_zero_grad(launched: Launches) -> Mask:
    """One bool a launch: was it made inside `zero_grad`?"""
    return launched.while_open(torch_names.ZERO_GRAD, "ranges", "ops", "functions")


def added_to_gradients(place: Place) -> Mask:
    """One bool a row of `place.kernels`: does it add a new gradient to the one that is stored?"""
    kernels, names = launches_of(place, "kernels"), (torch_names.STORES_GRADIENT, torch_names.ADDS_IN_PLACE)
    storing, adding = (kernels.inside_of("ops", named(place.timeline, "ops", name)) for name in names)
    return storing & adding
