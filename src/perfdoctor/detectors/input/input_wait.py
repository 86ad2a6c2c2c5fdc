"""The training waits for its next batch while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.host.loader import loader
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def _wait_ns(place: Place) -> int:
    return place.idle_ns("input_wait")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Idle that is proven, or on an unmarked recording inferred, to be a wait for the next batch."""
    share = run.share(_wait_ns)
    if share < at["min_share_of_step"]:
        return
    wait_ns, situation = run.mean(_wait_ns), loader(run)
    worst = run.worst(_wait_ns)
    yield Finding(
        rule="input-wait",
        saving_ns_per_step=saving(wait_ns, at["recoverable_share_low"], at["recoverable_share_likely"]),
        confidence="medium" if situation == "unmarked" else "high",
        values={
            "wait_ms": ms(wait_ns),
            "step_ms": ms(run.step_ns),
            "wait_percent": percent(share),
            "longest_ms": ms(int(worst.idle_causes["input_wait"].durations_ns.max(initial=0))),
        },
        evidence=(
            Measure("GPU idle while the next batch was awaited", wait_ns, "ns"),
            Measure("as a share of the step", share, "share"),
            Measure("longest single wait", int(worst.idle_causes["input_wait"].durations_ns.max(initial=0)), "ns"),
        ),
        situation=situation,
    )
