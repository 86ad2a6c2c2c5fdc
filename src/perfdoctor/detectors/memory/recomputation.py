"""Forward work is done a second time, inside the backward pass (activation checkpointing)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.kernels.recompute import recomputed
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Kernels launched by functions of the forward pass from inside nodes of the backward pass."""
    found = {id(place): recomputed(place) for place in run.places}

    def again_ns(place: Place) -> int:
        return place.alone_ns(found[id(place)])

    if not run.places or run.share(again_ns) < at["min_share_of_step"]:
        return
    again, worst = run.mean(again_ns), run.worst(again_ns)
    rows = found[id(worst)]
    yield Finding(
        rule="recomputation",
        saving_ns_per_step=saving(again, at["avoidable_share_low"], at["avoidable_share_likely"]),
        confidence="medium",
        values={
            "kernels_per_step": rows.sum() / worst.units,
            "again_ms": ms(again),
            "step_ms": ms(run.step_ns),
            "again_percent": percent(run.share(again_ns)),
        },
        evidence=(
            Measure("kernels of forward work done again, a step", rows.sum() / worst.units, "count"),
            Measure("their time", again, "ns"),
            largest(worst, rows, "Largest of them, a step"),
        ),
        work=work_of(run, lambda place: found[id(place)]),
        affected_ns=again,
    )
