"""How much of the step does the profiler itself cost? Nothing to fix: without the profiler it is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.accounting.longest import longest_idle
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find idle time behind the profiler's own marks: flushes and requests for buffers."""
    found = of_cause(run, "profiler", at["min_share_of_step"])
    if found is None:
        return
    yield Finding(
        rule="profiler-overhead",
        saving_ns_per_step=NO_SAVING,
        confidence="high",
        values=found.time_values("lost"),
        evidence=(
            Measure("idle while the profiler flushed its buffers", found.ns, "ns"),
            Measure("longest single flush", found.longest_ns, "ns"),
            *longest_idle(run, "profiler"),
        ),
    )
