"""On a run without a GPU: to which phase of a step do the ops of the training thread belong?"""

from __future__ import annotations

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Frame
from perfdoctor.vocabulary.kinds import OP_PHASES
from perfdoctor.vocabulary.names import torch as torch_names


def compute_by_phase(place: Place) -> dict[str, int]:
    """The time of its ops by OP_PHASES, in ns, which add up to its compute; empty where a GPU was recorded."""
    if not isinstance(place, HostPlace):
        return {}
    ops, ranges = place.rows("ops"), place.rows("ranges")
    backward = place.compute & (
        _covered(ops.named(torch_names.AUTOGRAD_NODE)) | _covered(ranges.named(torch_names.BACKWARD))
    )
    updating = _covered(ranges.named(torch_names.OPTIMIZER_RANGE)) | _covered(ops.named(torch_names.OPTIMIZER_RANGE))
    optimizer = (place.compute - backward) & updating
    other_ns = place.compute.total_ns - backward.total_ns - optimizer.total_ns
    return dict(zip(OP_PHASES, (other_ns, backward.total_ns, optimizer.total_ns), strict=True))


def _covered(rows: Frame) -> Intervals:
    return rows.intervals
