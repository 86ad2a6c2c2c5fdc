"""The training waits for its next batch while the device has nothing to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent

_LOADERS = (
    ("single-process", re.compile(r"SingleProcess\w*DataLoaderIter")),
    ("workers", re.compile(r"MultiProcess\w*DataLoaderIter")),
)


def _wait_ns(place: Place) -> int:
    return place.idle_ns("input_wait")


def loader(run: Run) -> str:
    """single-process, workers, other (the wait is marked, the loader is not told) or unmarked (the wait is inferred)."""
    for name, pattern in _LOADERS:
        for signal in ("ranges", "ops", "functions"):
            if run.timeline[signal].name.matches(pattern).any():
                return name
    marked = any((place.host.explicit["input_wait"] & place.idle_causes["input_wait"]) for place in run.places)
    return "other" if marked else "unmarked"


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
