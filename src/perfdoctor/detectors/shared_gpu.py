"""Somebody else is on a GPU of this run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.findings import Finding, Measure, Saving
from perfdoctor.metrics.device_state import of_places
from perfdoctor.metrics.memory import reserved_peaks
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.units import mib, percent


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """More processes than ranks on a GPU of the run; memory that nobody of it reserved makes it sure."""
    placed = of_places(run, at["min_load_share"])
    ours = [(gpu.device, rank) for (rank, _), gpu in placed.items()]
    crowded = []
    for gpu in {gpu.device: gpu for gpu in placed.values()}.values():
        told = gpu.floats("processes")
        told = told[~np.isnan(told) & (told > 0)]
        own = sum(device == gpu.device for device, _ in ours)
        more = told > own
        if told.size >= at["min_samples"] and more.mean() >= at["min_share_of_time"]:
            crowded.append((gpu, float(np.median(told[more])), own, float(more.mean())))
    if not crowded:
        return
    gpu, processes, own, share = max(crowded, key=lambda each: (each[1] - each[2], each[3]))
    used = gpu.floats("memory_used_bytes")
    own_ranks = {rank for device, rank in ours if device == gpu.device}
    reserved = sum(peak.peak_bytes for peak in reserved_peaks(run.timeline) if peak.rank in own_ranks)
    most = float(np.nanmax(used)) if not np.isnan(used).all() else 0.0
    is_foreign = bool(reserved) and most - reserved >= at["min_foreign_bytes"]
    evidence = [Measure("samples in which it is so", share, "share")]
    if most:
        evidence.append(Measure("memory in use on the GPU, at most", most, "bytes"))
    if reserved:
        evidence.append(Measure("memory that this run reserved, at most", reserved, "bytes"))
    yield Finding(
        rule="shared-gpu",
        saving_ns_per_step=Saving(0, 0, 0),
        confidence="high" if is_foreign else "medium",
        values={
            "gpu": gpu.device,
            "processes": round(processes),
            "own": own,
            "share_percent": percent(share),
            "foreign_mib": mib(most - reserved) if is_foreign else 0,
        },
        evidence=tuple(evidence),
        situation="memory" if is_foreign else "",
    )
