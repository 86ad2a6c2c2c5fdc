"""The training waits for its next batch while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.savings import shares
from perfdoctor.metrics.host.loader import loader
from perfdoctor.metrics.units import ms
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Idle that is proven, or on an unmarked recording inferred, to be a wait for the next batch."""
    found = of_cause(run, "input_wait", at["min_share_of_step"])
    if found is None:
        return
    situation = loader(run)
    yield Finding(
        rule="input-wait",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.ns),
        confidence="medium" if situation == "unmarked" else "high",
        values={
            **found.time_values("wait"),
            "longest_ms": ms(found.longest_ns),
        },
        evidence=(
            Measure("idle while the next batch was awaited", found.ns, "ns"),
            Measure("as a share of the step", found.share, "share"),
            Measure("longest single wait", found.longest_ns, "ns"),
        ),
        situation=situation,
    )
