"""Memory is asked from the driver, or given back to it, step after step, while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.metrics.memory.growth import requests
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find requests in steady steps, which come again and again: a caching allocator settles in the first steps."""
    least_share = at["min_share_of_step"]
    found = of_cause(run, "allocator", least_share)
    if found is None:
        return
    situation, named = found.recurrence(least_share), found.innermost("calls")
    if situation == "window" and found.longest_ns > MOST_OF_IT * found.pieces.total_ns:
        return  # one call, at the start as a rule, is none that comes again and again
    asked = requests(found.worst)
    uncached = min(asked.per_tensor, asked.returned_share) >= at["uncached_share"]
    situation = "uncached" if uncached else situation
    likely = 0.0 if situation and not uncached else at["recoverable_share_likely"]
    yield Finding(
        rule="allocator-churn",
        saving_ns_per_step=Shares(min(at["recoverable_share_low"], likely), likely).of(found.ns),
        confidence="low" if situation and not uncached else "high",
        values={**found.recurring_values(least_share, named, "an allocation"), "requests_per_step": asked.per_step},
        evidence=(
            *found.recurring_evidence("idle while the driver allocated or freed memory", least_share),
            *found.table("Calls meanwhile", named),
            Measure("calls that ask the driver for memory, a step", asked.per_step, "count"),
        ),
        situation=situation,
    )
