"""How much of the step does the profiler itself cost? Nothing to fix: without the profiler it is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.accounting.longest import longest_idle
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving


def _lost_ns(place: Place) -> int:
    return place.idle_ns("profiler")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Idle behind the profiler's own marks: flushes and requests for buffers."""
    share = run.share(_lost_ns)
    if share < at["min_share_of_step"]:
        return
    lost_ns, pieces = run.mean(_lost_ns), run.worst(_lost_ns).idle_causes["profiler"]
    yield Finding(
        rule="profiler-overhead",
        saving_ns_per_step=Saving(0, 0, 0),
        confidence="high",
        values={"lost_ms": ms(lost_ns), "step_ms": ms(run.step_ns), "lost_percent": percent(share)},
        evidence=(
            Measure("idle while the profiler flushed its buffers", lost_ns, "ns"),
            Measure("longest single flush", int(pieces.durations_ns.max(initial=0)), "ns"),
            *longest_idle(run, "profiler"),
        ),
    )
