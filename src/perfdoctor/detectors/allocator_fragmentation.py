"""What torch reserves on the GPU rises, though what the training holds does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure, Saving
from perfdoctor.metrics.memory import Reserve, reserves
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.units import mib


def _grown(reserve: Reserve) -> int:
    return reserve.peak_bytes - reserve.first_bytes


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Reserve above what is held is normal at the end of a step: activations are gone. That it keeps rising is not."""
    rising = [
        reserve
        for reserve in reserves(run.timeline)
        if _grown(reserve) >= max(at["min_growth_bytes"], at["min_growth_share"] * reserve.first_bytes)
        and reserve.rises >= at["min_rises"]
        and reserve.held_last_bytes - reserve.held_first_bytes <= at["max_held_share"] * _grown(reserve)
    ]
    if not rising:
        return
    most = max(rising, key=_grown)
    yield Finding(
        rule="allocator-fragmentation",
        saving_ns_per_step=Saving(0, 0, 0),
        confidence="medium",
        values={
            "grown_mib": mib(_grown(most)),
            "reserved_mib": mib(most.peak_bytes),
            "held_mib": mib(most.held_last_bytes),
            "rises": most.rises,
        },
        evidence=(
            Measure(f"reserved after the first sample on rank {most.rank}", most.first_bytes, "bytes"),
            Measure("most that was reserved", most.peak_bytes, "bytes"),
            Measure("held at the end of the first step", most.held_first_bytes, "bytes"),
            Measure("held at the end of the last", most.held_last_bytes, "bytes"),
        ),
    )
