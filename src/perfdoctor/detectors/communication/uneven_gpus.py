"""Of the GPUs of one process, one computes much more than the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.savings import Shares
from perfdoctor.metrics.machine.gpu_samples import sampled
from perfdoctor.metrics.machine.several_devices import teams
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Evenly spread, the step is shorter by what the busiest computes beyond the mean, if it is what is waited for."""
    uneven = [
        (work_ns, team)
        for team in teams(run, at["min_part_of_busiest"])
        if (work_ns := team.work_ns(at["max_slower"])) >= at["min_extra_share"] * team.mean_ns
        and work_ns >= at["min_share_of_step"] * team.busiest.per_step(team.busiest.window_ns)
    ]
    if not uneven:
        return
    work_ns, team = max(uneven, key=lambda each: each[0])
    critical = team.busiest.share(team.busiest.compute.total_ns) >= at["min_critical_share"]
    rows = tuple(
        (f"GPU {place.device}", place.per_step(place.compute.total_ns), place.per_step(place.idle.total_ns))
        for place in team.places
    )
    yield Finding(
        rule="uneven-gpus",
        saving_ns_per_step=Shares(0.0, at["recoverable_share_likely"] if critical else 0.0).of(work_ns),
        confidence="medium",
        values={
            "device": team.busiest.device if team.busiest.device is not None else 0,
            "busiest_ms": ms(team.mean_ns + team.extra_ns),
            "mean_ms": ms(team.mean_ns),
            "devices": len(team.places),
            "extra_percent": percent(team.extra_ns / team.mean_ns),
            "work_ms": ms(work_ns),
        },
        evidence=(
            Rows(f"The GPUs of rank {team.rank}, a step", ("device", "compute", "idle"), ("text", "ns", "ns"), rows),
            *sampled(run),
        ),
        formula="" if critical else "not-awaited",
    )
