"""Kernels that pass over their numbers as fast as the memory gives them: only fewer bytes make them shorter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure, Saving
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.kernel_sets import largest
from perfdoctor.metrics.memory_limit import rates
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.units import ms, percent


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Proven by shapes, types and time of single kernels; what a compiler would save is elementwise-chains' to say."""
    of_place = {id(place): rates(place) for place in run.places}
    near = {
        key: found.near(at["min_share_of_peak"], at["faster_than_memory"], at["min_moved_bytes"])
        for key, found in of_place.items()
    }

    def near_ns(place: Place) -> int:
        return place.alone_ns(near[id(place)])

    if not run.places or run.share(near_ns) < at["min_share_of_step"]:
        return
    worst = run.worst(near_ns)
    rows, found = near[id(worst)], of_place[id(worst)]
    moved = float(found.moved_bytes[rows].sum())
    rate = moved / (int(worst.kernels.duration_ns[rows].sum()) / 1e9)
    compute = run.mean(lambda place: place.compute.total_ns)
    yield Finding(
        rule="memory-bound-kernels",
        saving_ns_per_step=Saving(0, 0, 0),
        confidence="medium",
        values={
            "near_ms": ms(run.mean(near_ns)),
            "step_ms": ms(run.step_ns),
            "compute_percent": percent(run.mean(near_ns) / max(compute, 1)),
            "peak_percent": percent(rate / found.peak_bytes_per_second),
            "peak_gb_per_second": found.peak_bytes_per_second / 1e9,
        },
        evidence=(
            Measure("kernels at the limit of the memory", run.mean(near_ns), "ns"),
            Measure("bytes that they move a step, at the least", moved / worst.units, "bytes"),
            Measure(
                "kernels whose bytes are known", run.mean(lambda p: p.alone_ns(of_place[id(p)].moved_bytes > 0)), "ns"
            ),
            largest(worst, rows, "Largest of them, a step"),
        ),
    )
