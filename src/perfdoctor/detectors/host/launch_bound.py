"""The host launches work more slowly than the device does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import shares
from perfdoctor.metrics.host.pace import paced_waiting_ns
from perfdoctor.metrics.units import ms, percent, us
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows


def _idle_ns(place: JobPlace) -> int:
    return place.idle_ns("launch_bound")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find idle time in which the launching thread was busy launching; kernels in a queue are no evidence for it."""
    paced_ns = paced_waiting_ns(run, "launch_bound")
    idle_ns, worst = run.job.mean(_idle_ns) + paced_ns, run.worst(_idle_ns)
    share = idle_ns / max(run.step_ns, 1)
    if share < at["min_share_of_step"]:
        return
    ranks = len({place.rank for place in run.job.places})
    kernels = max(len(worst.kernels), 1)
    rows = [(place.rank, _idle_ns(place) // place.units, place.share(_idle_ns(place))) for place in run.job.places]
    rows.sort(key=lambda row: -row[1])
    columns = ("rank", "idle while its host was launching", "share of the step")
    gaps = worst.idle_causes["launch_bound"]
    mean_kernel_ns = int(worst.kernel_ns.sum()) / kernels
    yield Finding(
        rule="launch-bound",
        saving_ns_per_step=shares(at, "recoverable_share").of(idle_ns),
        confidence="high" if worst.host.ops_recorded else "medium",
        values={
            "lost_ms": ms(idle_ns),
            "lost_percent": percent(share),
            "rank": worst.rank,
            "ranks": ranks,
            "own_step_ms": ms(worst.per_step(worst.window_ns)),
            "idle_ms": ms(worst.per_step(_idle_ns(worst))),
            "idle_percent": percent(worst.share(_idle_ns(worst))),
            "paced_ms": ms(paced_ns),
            "step_ms": ms(run.step_ns),
            "kernels_per_step": kernels / worst.units,
            "kernel_us": us(mean_kernel_ns),
        },
        evidence=(
            Measure("GPU idle while the host was launching", idle_ns - paced_ns, "ns"),
            *([Rows("By rank", columns, ("count", "ns", "share"), tuple(rows[:16]))] if ranks > 1 else []),
            *((Measure("waiting for such a rank, with a host no faster", paced_ns, "ns"),) if paced_ns else ()),
            Measure("kernels a step", kernels / worst.units, "count"),
            Measure("mean kernel", mean_kernel_ns, "ns"),
            Measure("mean gap in front of which the host was late", gaps.total_ns / max(len(gaps), 1), "ns"),
        ),
        situation=("paced" if paced_ns else "ranks") if ranks > 1 else "",
    )
