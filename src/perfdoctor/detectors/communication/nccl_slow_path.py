"""NCCL takes a slower path than there is: past the links, through the CPU's memory, or by a wrong topology file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from perfdoctor.detectors.saved_shares import at_most
from perfdoctor.hardware.links import lacks_gpudirect, lacks_peer_access
from perfdoctor.metrics.communication.link_baseline import best_in_a_machine
from perfdoctor.metrics.communication.nccl import NcclLog
from perfdoctor.metrics.communication.topology import detours, pairs
from perfdoctor.metrics.units import ms
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding


class _SlowPath(Struct, frozen=True):
    situation: str
    pairs: int = 0
    setting: str = ""
    file: str = ""
    low_gb: float = 0.0
    high_gb: float = 0.0


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the first of three that the log proves: a wrong topology file, no peer access, no GPUDirect."""
    log = NcclLog.of(run.timeline)
    seen = _wrong_topology_file(run, log, at) or _no_peer_access(run, log) or _no_gpudirect(run, log, at)
    if seen is None:
        return
    exposed_ns = run.mean(lambda place: place.exposed_communication.total_ns)
    yield Finding(
        rule="nccl-slow-path",
        saving_ns_per_step=at_most(exposed_ns),
        confidence="high",
        values={
            "pairs": seen.pairs,
            "machines": log.machines,
            "setting": seen.setting,
            "file": seen.file,
            "low_gb": seen.low_gb,
            "high_gb": seen.high_gb,
            "exposed_ms": ms(exposed_ns),
        },
        evidence=(log.table(),) if len(log.ways) else (),
        situation=seen.situation,
    )


def _wrong_topology_file(run: Run, log: NcclLog, at: Mapping[str, float]) -> _SlowPath | None:
    """A topology file that contradicts the machine: links of one board differ by far, or carried more than it says."""
    files = log.values("topology_file")
    if not files:
        return None
    links = log.amounts("nvlink")
    if links and max(links) >= at["min_links_apart"] * min(links):
        return _SlowPath("links-differ", file=files[0], low_gb=min(links), high_gb=max(links))
    if max(log.amounts("nvls_channels"), default=0):
        return None  # the switches add up, and more comes out than any ring carries
    for ranks, planned in log.rings().items():
        measured = best_in_a_machine(run.timeline, ranks) / 1e9
        if log.machines_of(ranks) == 1 and planned and measured >= at["min_excess"] * planned:
            return _SlowPath("carried-more", file=files[0], low_gb=planned, high_gb=measured)
    return None


def _no_peer_access(run: Run, log: NcclLog) -> _SlowPath | None:
    """GPUs of one machine that exchange through the CPU's memory, because it was set or though they have NVLink."""
    through_memory = log.pairs("SHM/")
    has_nvlink = log.has("nvlink") or any(link.startswith("NV") for link in pairs(run.timeline).values())
    if not through_memory or (not has_nvlink and _is_only_way(run)):
        return None
    if settings := log.settings("NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL=LOC", "NCCL_P2P_LEVEL=0"):
        return _SlowPath("peer-access-off", pairs=through_memory, setting=settings[0])
    return _SlowPath("past-nvlink", pairs=through_memory) if has_nvlink and not log.pairs("P2P/") else None


def _is_only_way(run: Run) -> bool:
    """Are all GPUs of the job known to have no access to each other's memory, whatever is set?"""
    names = _gpu_names(run)
    return bool(names) and all(map(lacks_peer_access, names))


def _gpu_names(run: Run) -> set[str]:
    return ({device.name for device in run.timeline.devices} | set(run.timeline["link_tests"].text("gpu"))) - {""}


def _no_gpudirect(run: Run, log: NcclLog, at: Mapping[str, float]) -> _SlowPath | None:
    """A network between machines that could write into the GPU's memory, and does not.

    Where the NIC is behind the processor NCCL never uses GPUDirect: distant-nic reports that. Older GPUs without NVLink
    use it by default for what they receive alone (NCCL_NET_GDR_READ), which is no fault.
    """
    through_memory = log.pairs("NET/", without="GDRDMA", but_sends=True) - log.pairs("NET/Socket", but_sends=True)
    if log.machines < at["min_machines"] or through_memory <= 0:
        return None
    names = _gpu_names(run)
    if names and all(map(lacks_gpudirect, names)):
        return None
    if detours(run.timeline) and 0 not in log.amounts("gpudirect"):
        return None
    return _SlowPath("", pairs=through_memory)
