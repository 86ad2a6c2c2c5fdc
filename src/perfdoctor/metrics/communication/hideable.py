"""How much of exposed communication could run beside compute that does not need its result?

```
gradients             beside the backward pass: each is ready when its layer's backward pass is over
sharded parameters    beside the layer before, from the all-gather before on; the first of a step needs the update
sums inside layers    beside nothing: the next kernel needs them (tensor parallelism), unless both are split
others                beside compute that no collective runs beside
```
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.communication.collectives import is_full_precision, transfer_share, waited_for
from perfdoctor.metrics.frameworks import facts
from perfdoctor.model.host_rows import when_open
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.vocabulary.names import torch as torch_names

#: Facts of training that gathers its parameters layer by layer.
SHARDED = frozenset({"fsdp", "deepspeed"})
#: And of programs whose layers wait for sums of all ranks.
SUMS_IN_LAYERS = frozenset({"tensor-parallel", "inference"})


@dataclass(frozen=True)
class Purposes:
    """What each collective of a place carries: one bool a row of `place.collectives`; none of them: something else."""

    gradients: Mask
    parameters: Mask
    in_layers: Mask


@dataclass(frozen=True)
class Hideable:
    """Exposed transfer of a window that compute could hide, in ns, by what it carries.

    Gradients and parameters are limited by compute that is independent of them, the rest by compute that no collective
    runs beside; so are sums inside layers, if they were split. `messages`: in how many gradients are sent, a step.
    """

    gradients_ns: float
    parameters_ns: float
    in_layers_ns: float
    other_ns: float
    messages: float


def purposes(run: Run, place: Place) -> Purposes:
    """By kind, and by what the recording names."""
    known, kind = facts(run), place.collectives.text("kind")
    sums, gathers = kind.equals("all_reduce"), kind.equals("all_gather")
    in_layers = np.zeros(len(place.collectives), dtype=bool)
    if known & SUMS_IN_LAYERS:
        of_hook = launches_of(place, "collectives").while_open(torch_names.GRADIENT_HOOK, "ops", "ranges")
        sharded = bool(known & SHARDED)
        in_layers = (sums & ~of_hook) | ((gathers | kind.equals("reduce_scatter")) & (not sharded))
    gradients = (sums | kind.equals("reduce_scatter")) & ~in_layers
    return Purposes(gradients, gathers & ~in_layers, in_layers)


def hideable(run: Run, place: Place, backward_share: float) -> Hideable:
    """`backward_share`: of compute, where it was not recorded which of it is the backward pass."""
    rows, waited, transfer = purposes(run, place), waited_for(place), transfer_share(run)
    free = place.compute - place.communication
    gradients = _running(place, rows.gradients) & waited
    parameters = (_running(place, rows.parameters) & waited) - gradients
    in_layers = (_running(place, rows.in_layers) & waited) - gradients - parameters
    others = _running(place, ~(rows.gradients | rows.parameters | rows.in_layers)) & waited
    return Hideable(
        min(gradients.total_ns * transfer, backward_ns(place, backward_share)),
        # Without a GPU torch waits for each all-gather before it goes on.
        0.0 if place.device is None else transfer * _behind_layer_before(place, rows.parameters, parameters, free),
        min(in_layers.total_ns * transfer, free.total_ns),
        min((others - gradients - parameters).total_ns * transfer, free.total_ns),
        np.count_nonzero(rows.gradients) / place.units,
    )


def sent_ns(run: Run, place: Place) -> tuple[int, int]:
    """For how long compute waited for gradients and parameters in 32 bits, or of unknown type, and for gradients in 16.

    In ns of the window; where both are on their way at once, it waited for the former.
    """
    rows, frame, waited = purposes(run, place), place.collectives, waited_for(place)
    is_wide = is_full_precision(frame) | frame.text("data_type").equals("")
    wide = _running(place, (rows.gradients | rows.parameters) & is_wide) & waited
    narrow = (_running(place, rows.gradients & ~is_wide) & waited) - wide
    return wide.total_ns, narrow.total_ns


def _running(place: Place, rows: Mask) -> Intervals:
    return Intervals.of(place.collectives.start_ns[rows], place.collectives.end_ns[rows])


def _behind_layer_before(place: Place, rows: Mask, exposed: Intervals, free: Intervals) -> float:
    """How much of these all-gathers fits beside compute between the one before and themselves, but for one a step."""
    start, end = place.collectives.start_ns[rows], place.collectives.end_ns[rows]
    if start.size <= place.units:
        return 0.0
    before = free.overlap_ns(start[:-1], start[1:])
    hidden = np.minimum(exposed.overlap_ns(start[1:], end[1:]), before)
    return min(float(hidden.mean()) * (start.size - place.units), float(exposed.total_ns))


def backward_ns(place: Place, unknown_share: float) -> float:
    """Compute of the window's backward passes that no collective runs beside, in ns.

    `unknown_share` of all such compute, where it was not recorded what belongs to them.
    """
    free = place.compute - place.communication
    passes = when_open(place.timeline, place.rank, torch_names.AUTOGRAD_NODE, "ops")
    if place.device is None:
        backward = free & passes
    else:
        inside = launches_of(place, "kernels").within(passes)
        backward = free & Intervals.of(place.kernels.start_ns[inside], place.kernels.end_ns[inside])
    return backward.total_ns if backward else free.total_ns * unknown_share
