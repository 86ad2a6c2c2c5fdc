"""Other programs use the cores that the training waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_host import core_measures
from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.host import cpu_use
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find that others had the cores that the training thread waited for: a doubt about the measurement, no saving."""
    found = cpu_use.crowding(run)
    if found is None or found.lost_share < at["min_lost_share"]:
        return
    yield Finding(
        rule="busy-machine",
        saving_ns_per_step=NO_SAVING,
        confidence="high",
        values={
            "others": found.others,
            "cores": found.cores,
            "waiting_ms": ms(found.lost_share * run.step_ns),
            "step_ms": ms(run.step_ns),
            "waiting_percent": percent(found.lost_share),
        },
        evidence=core_measures(run, found),
        situation="without-gpu" if host_places(run) else "",
        if_less=("", found.lost_share),
    )
