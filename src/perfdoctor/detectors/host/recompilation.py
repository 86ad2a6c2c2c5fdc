"""A compiler, a tuner or the loading of kernels is at work in steady steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.accounting.behind_idle import table
from perfdoctor.metrics.accounting.stalls import stalls
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Compiling once is warm-up: it counts as a sickness where it comes in several of the steady steps."""
    found = stalls(run, "compilation", ("calls", "ops", "ranges", "functions"), at["min_share_of_step"])
    if found is None:
        return
    likely = 0.0 if found.situation else at["recoverable_share_likely"]
    yield Finding(
        rule="recompilation",
        saving_ns_per_step=saving(found.lost_ns, min(at["recoverable_share_low"], likely), likely),
        confidence="low" if found.situation else "high",
        values={
            "lost_ms": ms(found.lost_ns),
            "step_ms": ms(run.step_ns),
            "lost_percent": percent(found.share),
            "steps_hit": found.steps_hit,
            "steps_seen": found.steps_seen,
            "longest_ms": ms(found.longest_ns),
            "name": found.named[0].name if found.named else "a compiler",
        },
        evidence=(
            Measure("idle while something was compiled, tuned or loaded", found.lost_ns, "ns"),
            Measure("steps with it", found.steps_hit, "count"),
            Measure("steps looked at", found.steps_seen, "count"),
            *(
                (table("Innermost call, op, range or function meanwhile", found.worst, found.named),)
                if found.named
                else ()
            ),
        ),
        situation=found.situation,
    )
