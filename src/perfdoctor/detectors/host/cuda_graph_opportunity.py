"""The host is too slow, and every step launches the same kernels: one graph could be captured and replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import shares
from perfdoctor.metrics.host.pace import paced_waiting_ns
from perfdoctor.metrics.kernels.repetition import repetition
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import cuda as cuda_names


def _has_graphs(place: Place) -> bool:
    calls = place.timeline.calls.of(rank=place.rank)
    return bool(calls.name.matches(cuda_names.GRAPH_LAUNCH).any())


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find that every place repeats itself: the ranks of one job capture together or not at all."""
    idle_ns = run.mean(lambda place: place.idle_ns("launch_bound")) + paced_waiting_ns(run, "launch_bound")
    share = idle_ns / max(run.step_ns, 1)
    if share < at["min_share_of_step"] or any(_has_graphs(place) for place in run.places):
        return
    found = [repetition(place) for place in run.places]
    if any(each.steps < at["min_steps"] or each.same < at["min_same_share"] * each.steps for each in found):
        return
    least = min(found, key=lambda each: each.same / each.steps)
    yield Finding(
        rule="cuda-graph-opportunity",
        saving_ns_per_step=shares(at, "recoverable_share").of(idle_ns),
        confidence="high",
        values={
            "idle_ms": ms(idle_ns),
            "step_ms": ms(run.step_ns),
            "idle_percent": percent(share),
            "same": least.same,
            "steps": least.steps,
            "kernels": least.kernels,
        },
        evidence=(
            Measure("GPU idle while the host was launching, or waiting for a rank whose host was", idle_ns, "ns"),
            Measure("steps with the very same kernels in the same order", least.same, "count"),
            Measure("steps analysed", least.steps, "count"),
            Measure("kernels in each", least.kernels, "count"),
        ),
    )
