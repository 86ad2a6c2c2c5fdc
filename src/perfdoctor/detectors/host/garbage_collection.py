"""Python's garbage collector stops the training's thread while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.savings import shares
from perfdoctor.metrics.units import ms
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Only collections that were marked and left the device idle; those behind a full queue cost nothing."""
    found = of_cause(run, "garbage_collection", at["min_share_of_step"])
    if found is None:
        return
    yield Finding(
        rule="garbage-collection",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.ns),
        confidence="high",
        values={
            **found.time.lost_values(),
            "steps_hit": found.steps_hit,
            "steps_seen": found.steps_seen,
            "longest_ms": ms(found.longest_ns),
        },
        evidence=(
            Measure("idle during garbage collection", found.ns, "ns"),
            Measure("collections a step that cost idle time", found.times_per_step, "count"),
            Measure("longest", found.longest_ns, "ns"),
            *found.table("Innermost meanwhile", found.innermost("ops", "ranges", "functions")),
        ),
        situation="" if run.per_step else "window",
    )
