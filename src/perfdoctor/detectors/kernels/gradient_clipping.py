"""Gradients are clipped tensor by tensor, and the device waits while the host goes through them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_loops
from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.metrics.host.tensor_loops import TensorLoop, tensor_loops
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure

#: Of one list, a multi-tensor kernel takes so many tensors (MultiTensorApply.cuh: depth_to_max_tensors).
_TENSORS = 110
#: Norms, and the scaling.
_PASSES = 2
#: Launches for the factor of all: stack, norm, add, reciprocal, multiply, clamp.
_FACTOR = 6


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find loops over norms, and the scaling that follows; the idle time is launch-bound's, located here."""

    def loops(place: Place) -> list[TensorLoop]:
        return [loop for loop in tensor_loops(place, int(at["min_tensors"])) if loop.is_clipping]

    found = of_loops(run, loops, at["min_share_of_step"])
    if found is None:
        return
    ops_per_step = sum(loop.turns * len(loop.names) for loop in found.of_worst) / found.worst.units
    tensors = max(loop.turns for loop in found.of_worst)
    # Of a multi-tensor implementation: one for the norms and one for the scaling of `_TENSORS`, and for the factor.
    launches, left = ops_per_step + _FACTOR, _PASSES * -(-tensors // _TENSORS) + _FACTOR
    likely = max(1 - left / launches, at["recoverable_share_low"])
    yield Finding(
        rule="gradient-clipping",
        saving_ns_per_step=Shares(at["recoverable_share_low"], likely).of(found.ns),
        confidence="medium",
        values={
            "ops_per_step": ops_per_step,
            "tensors": tensors,
            "launches": launches,
            "launches_left": left,
            **found.time_values("idle"),
        },
        evidence=(
            Measure("ops on single tensors a step", ops_per_step, "count"),
            Measure("device idle while the host asks for them", found.ns, "ns"),
        ),
        work=found.work,
        affected_ns=found.ns,
    )
