"""GPUs send through a NIC behind the processor, though another one stands beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import at_most
from perfdoctor.metrics.communication.topology import detours
from perfdoctor.metrics.units import ms
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find GPUs for which log and topology together name the NIC that is taken and a nearer one."""
    found = detours(run.timeline)
    gpus = {detour.gpu for detour in found}
    if len(gpus) < at["min_gpus"]:
        return
    first = found[0]
    exposed_ns = run.mean(lambda place: place.exposed_communication.total_ns)
    columns = ("GPU", "NIC", "joined by", "nearer", "joined by")
    rows = tuple((f"GPU {each.gpu}", each.nic, each.link, each.nearer, each.nearer_link) for each in found[:16])
    yield Finding(
        rule="distant-nic",
        saving_ns_per_step=at_most(exposed_ns),
        confidence="high",
        values={
            "gpus": len(gpus),
            "gpu": first.gpu,
            "nic": first.nic,
            "link": first.link,
            "nearer": first.nearer,
            "nearer_link": first.nearer_link,
            "exposed_ms": ms(exposed_ns),
        },
        evidence=(Rows("Ways that are longer than they must be", columns, ("text",) * 5, rows),),
    )
