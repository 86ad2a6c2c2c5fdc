"""The host stands in a barrier or waits for another process while its device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find waits on the host, beside collectives on the device: barriers, stores, collectives of Python objects."""
    found = of_cause(run, "peer_wait", at["min_share_of_step"])
    if found is None:
        return
    named = found.innermost("ops", "ranges", "functions")
    yield Finding(
        rule="peer-waits",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.ns),
        confidence="medium",
        values={**found.occurrence_values(), "name": named[0].name if named else "a barrier"},
        evidence=found.occurrence_evidence("idle while the host waited for other ranks", "such waits a step", named),
        situation="" if run.per_step else "window",
    )
