"""A compiler, a tuner or the loading of kernels is at work in steady steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.savings import Shares
from perfdoctor.metrics.units import ms
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Compiling once is warm-up: it counts as a fault where it comes in several of the steady steps."""
    least_share = at["min_share_of_step"]
    found = of_cause(run, "compilation", least_share)
    if found is None:
        return
    situation, named = found.recurrence(least_share), found.innermost("calls", "ops", "ranges", "functions")
    likely = 0.0 if situation else at["recoverable_share_likely"]
    yield Finding(
        rule="recompilation",
        saving_ns_per_step=Shares(min(at["recoverable_share_low"], likely), likely).of(found.ns),
        confidence="low" if situation else "high",
        values={
            **found.time.lost_values(),
            "steps_hit": found.steps_losing(least_share),
            "steps_seen": found.steps_seen,
            "longest_ms": ms(found.longest_in_a_step_ns),
            "name": named[0].name if named else "a compiler",
        },
        evidence=(
            Measure("idle while something was compiled, tuned or loaded", found.ns, "ns"),
            Measure("steps with it", found.steps_losing(least_share), "count"),
            Measure("steps looked at", found.steps_seen, "count"),
            *found.table("Innermost call, op, range or function meanwhile", named),
        ),
        situation=situation,
    )
