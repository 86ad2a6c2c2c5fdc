"""Between machines NCCL goes over sockets, though a faster network was intended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import at_most
from perfdoctor.metrics.communication.nccl import NcclLog
from perfdoctor.metrics.units import ms
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure

#: Facts that show a faster network was sought and not found, the surest first → the words for it.
_WHY = {
    "plugin_failed": "its network plugin could not be loaded",
    "no_infiniband": "it found no InfiniBand device",
    "no_verbs": "libibverbs could not be opened",
}


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find ways over NET/Socket between machines, with a sign that a faster network was available."""
    log = NcclLog.of(run.timeline)
    over_sockets = log.pairs("NET/Socket")
    if not over_sockets or log.machines < at["min_machines"]:
        return
    disabled = log.settings("NCCL_IB_DISABLE=1", "NCCL_NET=Socket")
    why = next((fact for fact in _WHY if log.has(fact)), "")
    if not why and not disabled:
        return
    exposed_ns = run.mean(lambda place: place.exposed_communication.total_ns)
    yield Finding(
        rule="nccl-socket-fallback",
        saving_ns_per_step=at_most(exposed_ns),
        confidence="high" if disabled or why == "plugin_failed" else "medium",
        values={
            "pairs": over_sockets,
            "machines": log.machines,
            "why": f"{' and '.join(disabled)} {'is' if len(disabled) == 1 else 'are'} set" if disabled else _WHY[why],
            "exposed_ms": ms(exposed_ns),
        },
        evidence=(Measure("connections between ranks over sockets", over_sockets, "count"), log.table()),
        situation="disabled" if disabled else "plugin" if why == "plugin_failed" else "",
    )
