"""Memory is asked from the driver, or given back to it, step after step, while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.savings import Shares
from perfdoctor.metrics.units import ms
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """A caching allocator settles in the first steps: what it still asks for in steady ones comes again and again."""
    least_share = at["min_share_of_step"]
    found = of_cause(run, "allocator", least_share)
    if found is None:
        return
    situation, named = found.recurrence(least_share), found.innermost("calls")
    likely = 0.0 if situation else at["recoverable_share_likely"]
    yield Finding(
        rule="allocator-churn",
        saving_ns_per_step=Shares(min(at["recoverable_share_low"], likely), likely).of(found.ns),
        confidence="low" if situation else "high",
        values={
            **found.time.lost_values(),
            "steps_hit": found.steps_losing(least_share),
            "steps_seen": found.steps_seen,
            "longest_ms": ms(found.longest_in_a_step_ns),
            "name": named[0].name if named else "an allocation",
        },
        evidence=(
            Measure("idle while the driver allocated or freed memory", found.ns, "ns"),
            Measure("steps with it", found.steps_losing(least_share), "count"),
            Measure("steps looked at", found.steps_seen, "count"),
            *found.table("Calls meanwhile", named),
        ),
        situation=situation,
    )
