"""The GPUs of a job have no ring of NVLinks, and others of the same machine have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import at_most
from perfdoctor.metrics.communication.topology import better, gpus, is_nvlink, of_job, pairs
from perfdoctor.metrics.units import ms
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find a better choice of as many GPUs, where it is known which ones the job has."""
    links = pairs(run.timeline)
    every, (chosen, is_certain) = gpus(links), of_job(run)
    if len(chosen) < at["min_gpus"] or not set(chosen) <= set(every):
        return
    instead = better(links, chosen)
    if not instead:
        return
    exposed_ns = run.mean(lambda place: place.exposed_communication.total_ns)
    apart = [
        (f"GPU {one}", f"GPU {other}", links.get((f"GPU{one}", f"GPU{other}"), "unknown"))
        for one in chosen
        for other in chosen
        if one < other and not is_nvlink(links, one, other)
    ]
    yield Finding(
        rule="distant-gpus",
        # How much of the exposed time the links cost is slow-links' to measure: here it is only bounded.
        saving_ns_per_step=at_most(exposed_ns),
        confidence="high" if is_certain else "medium",
        values={
            "count": len(chosen),
            "chosen": ", ".join(map(str, chosen)),
            "instead": ", ".join(map(str, instead)),
            "pairs": len(apart),
            "exposed_ms": ms(exposed_ns),
        },
        evidence=(Rows("Pairs without NVLink", ("GPU", "and", "joined by"), ("text",) * 3, tuple(apart[:16])),),
    )
