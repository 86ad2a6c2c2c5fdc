"""Memory is asked from the driver, or given back to it, step after step, while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure
from perfdoctor.metrics.behind_idle import culprits, each_step_ns, host_rows, table
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent


def _lost_ns(place: Place) -> int:
    return place.idle_ns("allocator")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """A caching allocator settles in the first steps: what it still asks for in steady ones comes again and again."""
    share = run.share(_lost_ns)
    if share < at["min_share_of_step"]:
        return
    lost_ns, worst = run.mean(_lost_ns), run.worst(_lost_ns)
    pieces = worst.idle_causes["allocator"]
    each_ns = each_step_ns(worst, pieces)
    hit = int((each_ns >= at["min_share_of_step"] * worst.per_step(worst.window_ns)).sum())
    named = culprits(pieces, host_rows(worst, ("calls",)))
    situation = "" if hit > 1 else "once"
    if not run.per_step:
        situation = "window"
    likely = 0.0 if situation else at["recoverable_share_likely"]
    yield Finding(
        rule="allocator-churn",
        saving_ns_per_step=saving(lost_ns, min(at["recoverable_share_low"], likely), likely),
        confidence="low" if situation else "high",
        values={
            "lost_ms": ms(lost_ns),
            "step_ms": ms(run.step_ns),
            "lost_percent": percent(share),
            "steps_hit": hit,
            "steps_seen": int(each_ns.size),
            "longest_ms": ms(int(each_ns.max(initial=0))),
            "name": named[0].name if named else "an allocation",
        },
        evidence=(
            Measure("idle while the driver allocated or freed memory", lost_ns, "ns"),
            Measure("steps with it", hit, "count"),
            Measure("steps looked at", int(each_ns.size), "count"),
            *((table("Calls meanwhile", worst, named),) if named else ()),
        ),
        situation=situation,
    )
