"""Python's garbage collector stops the training's thread while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find collections that were marked and left the device idle; those behind a full queue cost nothing."""
    found = of_cause(run, "garbage_collection", at["min_share_of_step"])
    if found is None:
        return
    yield Finding(
        rule="garbage-collection",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.ns),
        confidence="high",
        values=found.occurrence_values(),
        evidence=found.occurrence_evidence(
            "idle during garbage collection",
            "collections a step that cost idle time",
            found.innermost("ops", "ranges", "functions"),
        ),
        situation="" if run.per_step else "window",
    )
