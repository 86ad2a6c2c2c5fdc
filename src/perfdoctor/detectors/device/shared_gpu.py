"""Other processes use a GPU of this run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.counters.means import foreign_sm_share
from perfdoctor.metrics.machine.gpu_samples import SampledGpu, of_places
from perfdoctor.metrics.memory.growth import reserved_peaks
from perfdoctor.metrics.units import mib, percent
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


class _Crowd(Struct, frozen=True):
    """A GPU with more processes than the `own` of this run in a `share` of its samples; bytes are 0 if unknown."""

    gpu: SampledGpu
    processes: float
    own: int
    share: float
    used_bytes: float
    reserved_bytes: int

    @property
    def foreign_bytes(self) -> float:
        """What is in use beyond what this run reserved; 0 where either is not known."""
        return max(self.used_bytes - self.reserved_bytes, 0.0) if self.reserved_bytes else 0.0


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find more processes than ranks on a GPU; memory that no process of the run reserved makes it sure. Without a list
    of processes, find SMs at work while nothing of this run is.
    """
    placed = of_places(run, at["min_load_share"], "processes")
    ranks_of: dict[int, list[int]] = {}
    for (rank, _), gpu in placed.items():
        ranks_of.setdefault(gpu.device, []).append(rank)
    gpus = {gpu.device: gpu for gpu in placed.values()}.values()
    # It must be seen often, and for long; once is enough where other processes hold memory.
    crowded = [
        each
        for gpu in gpus
        if (each := _crowd(run, gpu, ranks_of[gpu.device])) and each.share >= at["min_share_of_time"]
        if np.sum(gpu.floats("processes") > 0) >= at["min_samples"] or each.foreign_bytes >= at["min_foreign_bytes"]
    ]
    if not crowded:
        yield from _counted(run, at)
        return
    worst = max(crowded, key=lambda each: (each.processes - each.own, each.share))
    sizes = {
        "memory in use on the GPU, at most": worst.used_bytes,
        "memory that this run reserved, at most": worst.reserved_bytes,
    }
    is_foreign = worst.foreign_bytes >= at["min_foreign_bytes"]
    yield Finding(
        rule="shared-gpu",
        saving_ns_per_step=NO_SAVING,
        confidence="high" if is_foreign else "medium",
        values={
            "gpu": worst.gpu.device,
            "processes": round(worst.processes),
            "own": worst.own,
            "share_percent": percent(worst.share),
            "foreign_mib": mib(worst.foreign_bytes) if is_foreign else 0,
        },
        evidence=(
            Measure("samples in which it is so", worst.share, "share"),
            *(Measure(label, size, "bytes") for label, size in sizes.items() if size),
        ),
        situation="memory" if is_foreign else "",
    )


def _counted(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find it by the GPU's own counters, which count the work of all processes."""
    shares = {place.rank_and_device: foreign_sm_share(place) for place in run.places if place.device is not None}
    others = {key: share for key, share in shares.items() if share >= at["min_foreign_sm_share"]}
    if not others:
        return
    worst = max(others, key=lambda key: others[key])
    yield Finding(
        rule="shared-gpu",
        saving_ns_per_step=NO_SAVING,
        confidence="medium",
        values={
            "gpu": worst[1],
            "processes": 0,
            "own": 0,
            "share_percent": percent(others[worst]),
            "foreign_mib": 0,
        },
        evidence=(Measure("SMs at work while nothing of the program ran on it", others[worst], "share"),),
        situation="counted",
    )


def _crowd(run: Run, gpu: SampledGpu, ranks: list[int]) -> _Crowd | None:
    processes = gpu.floats("processes")
    processes = processes[~np.isnan(processes) & (processes > 0)]
    more = processes > len(ranks)
    if not more.any():
        return None
    used = gpu.floats("memory_used_bytes")
    return _Crowd(
        gpu,
        float(np.median(processes[more])),
        len(ranks),
        float(more.mean()),
        float(np.nanmax(used)) if not np.isnan(used).all() else 0.0,
        sum(peak.peak_bytes for peak in reserved_peaks(run.timeline) if peak.rank in ranks),
    )
