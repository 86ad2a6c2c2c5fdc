"""Memory is asked from the driver, or given back to it, step after step, while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.accounting.behind_idle import table
from perfdoctor.metrics.accounting.stalls import stalls
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """A caching allocator settles in the first steps: what it still asks for in steady ones comes again and again."""
    found = stalls(run, "allocator", ("calls",), at["min_share_of_step"])
    if found is None:
        return
    likely = 0.0 if found.situation else at["recoverable_share_likely"]
    yield Finding(
        rule="allocator-churn",
        saving_ns_per_step=saving(found.lost_ns, min(at["recoverable_share_low"], likely), likely),
        confidence="low" if found.situation else "high",
        values={
            "lost_ms": ms(found.lost_ns),
            "step_ms": ms(run.step_ns),
            "lost_percent": percent(found.share),
            "steps_hit": found.steps_hit,
            "steps_seen": found.steps_seen,
            "longest_ms": ms(found.longest_ns),
            "name": found.named[0].name if found.named else "an allocation",
        },
        evidence=(
            Measure("idle while the driver allocated or freed memory", found.lost_ns, "ns"),
            Measure("steps with it", found.steps_hit, "count"),
            Measure("steps looked at", found.steps_seen, "count"),
            *((table("Calls meanwhile", found.worst, found.named),) if found.named else ()),
        ),
        situation=found.situation,
    )
