"""Of the GPUs of one process, one computes much more than the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.kernels.same_kernels import medians_of
from perfdoctor.metrics.machine.gpu_samples import sampled
from perfdoctor.metrics.machine.several_devices import teams
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Rows
from perfdoctor.records.savings import Saving

#: Loads that are made even in whole pieces end between nothing and one piece apart.
LEFT_OF_A_PIECE = 0.5


def _piece_ns(place: Place) -> float:
    """The smallest piece of work that can be moved to another GPU, in ns a step; 0 where no kernel comes twice.

    A network repeats its layers, and each layer runs its kernels: compute over the runs of the most frequent kernel.
    """
    runs = max((count for count, _ in medians_of(place).values()), default=0.0)
    return place.per_step(place.compute.total_ns) / runs if runs > 1 else 0.0


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the compute of the busiest GPU beyond the mean: spread evenly, it shortens a step that waits for it."""
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
    # Moved in whole pieces, the busiest ends above the mean.
    piece_ns = _piece_ns(team.busiest)
    likely_ns = max(int(work_ns - LEFT_OF_A_PIECE * piece_ns), 0) if critical else 0
    rows = tuple(
        (f"GPU {place.device}", place.per_step(place.compute.total_ns), place.per_step(place.idle.total_ns))
        for place in team.places
    )
    yield Finding(
        rule="uneven-gpus",
        saving_ns_per_step=Saving(0, likely_ns, work_ns),
        confidence="medium",
        values={
            "device": team.busiest.device if team.busiest.device is not None else 0,
            "busiest_ms": ms(team.mean_ns + team.extra_ns),
            "mean_ms": ms(team.mean_ns),
            "devices": len(team.places),
            "extra_percent": percent(team.extra_ns / team.mean_ns),
            "work_ms": ms(work_ns),
            "piece_ms": ms(piece_ns),
        },
        evidence=(
            Rows(f"The GPUs of rank {team.rank}, a step", ("device", "compute", "idle"), ("text", "ns", "ns"), rows),
            *sampled(run),
        ),
        formula="" if critical else "not-awaited",
    )
