"""A compiler, a tuner or the loading of kernels is at work in steady steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure
from perfdoctor.metrics.behind_idle import culprits, each_step_ns, host_rows, table
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent


def _lost_ns(place: Place) -> int:
    return place.idle_ns("compilation")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Compiling once is warm-up: it counts as a sickness where it comes in several of the steady steps."""
    share = run.share(_lost_ns)
    if share < at["min_share_of_step"]:
        return
    lost_ns, worst = run.mean(_lost_ns), run.worst(_lost_ns)
    pieces = worst.idle_causes["compilation"]
    each_ns = each_step_ns(worst, pieces)
    hit = int((each_ns >= at["min_share_of_step"] * worst.per_step(worst.window_ns)).sum())
    named = culprits(pieces, host_rows(worst, ("calls", "ops", "ranges", "functions")))
    situation = "" if hit > 1 else "once"
    if not run.per_step:
        situation = "window"
    likely = 0.0 if situation else at["recoverable_share_likely"]
    yield Finding(
        rule="recompilation",
        saving_ns_per_step=saving(lost_ns, min(at["recoverable_share_low"], likely), likely),
        confidence="low" if situation else "high",
        values={
            "lost_ms": ms(lost_ns),
            "step_ms": ms(run.step_ns),
            "lost_percent": percent(share),
            "steps_hit": hit,
            "steps_seen": int(each_ns.size),
            "longest_ms": ms(int(each_ns.max(initial=0))),
            "name": named[0].name if named else "a compiler",
        },
        evidence=(
            Measure("idle while something was compiled, tuned or loaded", lost_ns, "ns"),
            Measure("steps with it", hit, "count"),
            Measure("steps looked at", int(each_ns.size), "count"),
            *((table("Innermost call, op, range or function meanwhile", worst, named),) if named else ()),
        ),
        situation=situation,
    )
