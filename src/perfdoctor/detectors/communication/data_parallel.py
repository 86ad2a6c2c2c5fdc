"""One process drives several GPUs with torch.nn.DataParallel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.machine.several_devices import is_data_parallel, teams
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Only what the first GPU does beyond its share is a saving: copies and collectives have rules of their own."""
    marked = [team for team in teams(run, at["min_part_of_busiest"]) if is_data_parallel(run, team.rank)]
    if not marked:
        return
    team = max(marked, key=lambda each: each.extra_ns)
    step_ns = team.busiest.per_step(team.busiest.window_ns)
    idle_ns = sum(place.per_step(place.idle.total_ns) for place in team.places) // len(team.places)
    critical = team.busiest.share(team.busiest.compute.total_ns) >= at["min_critical_share"]
    yield Finding(
        rule="data-parallel",
        saving_ns_per_step=Saving(0, team.extra_ns if critical else 0, team.extra_ns),
        confidence="high",
        values={
            "devices": len(team.places),
            "idle_percent": percent(idle_ns / step_ns) if step_ns else 0.0,
            "extra_ms": ms(team.extra_ns),
        },
        evidence=(
            Measure("GPUs that one process drives", len(team.places), "count"),
            Measure("compute a step, on the mean of them", team.mean_ns, "ns"),
            Measure("what the busiest computes beyond that", team.extra_ns, "ns"),
            Measure("idle a step, on the mean of them", idle_ns, "ns"),
        ),
    )
