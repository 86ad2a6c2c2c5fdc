"""The device was idle and the recording does not tell why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent


def _unknown_ns(place: Place) -> int:
    return place.idle_ns("unknown")


def _situation(run: Run) -> str:
    """What the recording lacks: no-calls (nothing of the host), calls-only, or "" (all is there, and not enough)."""
    if "calls" not in run.timeline.recorded:
        return "no-calls"
    return "" if any(place.host.in_view for place in run.places) else "calls-only"


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Idle without proof of its cause. What it would save is what it lasts, with nothing to rely on: low is zero."""
    share = run.share(_unknown_ns)
    if share < at["min_share_of_step"]:
        return
    unknown_ns, worst = run.mean(_unknown_ns), run.worst(_unknown_ns)
    yield Finding(
        rule="idle-unknown",
        saving_ns_per_step=saving(unknown_ns, 0.0, 1.0),
        confidence="low",
        values={"idle_ms": ms(unknown_ns), "step_ms": ms(run.step_ns), "idle_percent": percent(share)},
        evidence=(
            Measure("GPU idle without a known cause", unknown_ns, "ns"),
            Measure("stretches a step", len(worst.idle_causes["unknown"]) / worst.units, "count"),
        ),
        situation=_situation(run),
    )
