"""Memory that rises with every step, until there is none left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.memory.growth import growths
from perfdoctor.metrics.memory.step_samples import keepers
from perfdoctor.metrics.units import mib
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the process that grows most. It takes no time, so a fix saves none: what it saves is the run."""
    least, of_device = {"heap": at["min_heap_bytes_per_step"]}, at["min_device_bytes_per_step"]
    rising = [
        growth
        for growth in growths(run.timeline, at["recorder_bytes_per_row"])
        if growth.bytes_per_step >= least.get(growth.kind, of_device) and growth.rising_share >= at["min_rising_share"]
    ]
    if not rising:
        return
    most = max(rising, key=lambda growth: growth.bytes_per_step)
    holders = [] if most.kind == "heap" else list(keepers(run.timeline, most.rank, at["min_rising_share"]))
    columns, units = ("line and callers", "held", "tensors"), ("text", "bytes", "count")
    kept = tuple((holder.stack or "no stack", holder.bytes, holder.count) for holder in holders[:5])
    yield Finding(
        rule="memory-growth",
        saving_ns_per_step=NO_SAVING,
        confidence="medium" if most.kind == "heap" else "high",
        values={
            "growth_mib": mib(most.bytes_per_step),
            "held_mib": mib(most.last_bytes),
            "steps_left": max(most.capacity_bytes - most.last_bytes, 0) / most.bytes_per_step,
        },
        evidence=(
            Measure(f"growth a step on rank {most.rank}", most.bytes_per_step, "bytes"),
            Measure("held at the end of the first recorded step", most.first_bytes, "bytes"),
            Measure("held at the end of the last", most.last_bytes, "bytes"),
            Measure("steps in which it rose", round(most.rising_share * most.gaps), "count"),
            Measure("steps analysed", most.gaps, "count"),
            *([Rows("Made in the recorded steps and never freed", columns, units, kept)] if kept else []),
        ),
        situation="host" if most.kind == "heap" else "" if most.capacity_bytes else "unknown-size",
    )
