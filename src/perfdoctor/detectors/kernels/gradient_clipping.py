"""Gradients are clipped tensor by tensor, and the device waits while the host goes through them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.host.tensor_loops import TensorLoop, issuing_ns, spans_of, tensor_loops
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Loops over norms, and the scaling that follows; the idle time is launch-bound's, told here by its place."""
    loops: dict[int, list[TensorLoop]] = {
        id(place): [loop for loop in tensor_loops(place, int(at["min_tensors"])) if loop.is_clipping]
        for place in run.places
    }

    def idle_ns(place: Place) -> int:
        return issuing_ns(place, loops[id(place)])

    share = run.share(idle_ns)
    if share < at["min_share_of_step"]:
        return
    idle, worst = run.mean(idle_ns), run.worst(idle_ns)
    inside = [loop for loop in loops[id(worst)] if worst.window.overlap_ns([loop.start_ns], [loop.end_ns])[0] > 0]
    ops = sum(loop.turns * len(loop.names) for loop in inside) / worst.units
    yield Finding(
        rule="gradient-clipping",
        saving_ns_per_step=saving(idle, at["recoverable_share_low"], at["recoverable_share_likely"]),
        confidence="medium",
        values={
            "ops_per_step": ops,
            "tensors": max(loop.turns for loop in inside),
            "idle_ms": ms(idle),
            "step_ms": ms(run.step_ns),
            "idle_percent": percent(share),
        },
        evidence=(
            Measure("ops on single tensors a step", ops, "count"),
            Measure("device idle while the host asks for them", idle, "ns"),
        ),
        work=work_of(run, lambda place: launches_of(place, "kernels").within(spans_of(loops[id(place)]))),
        affected_ns=idle,
    )
