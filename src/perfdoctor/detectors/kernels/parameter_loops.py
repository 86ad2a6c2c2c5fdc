"""Python updates tensors one by one outside the optimizer, and the device waits meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_loops
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.metrics.host.tensor_loops import TensorLoop, tensor_loops
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find averages of weights and updates written by hand; clipping and Optimizer.step have rules of their own."""

    def loops(place: Place) -> list[TensorLoop]:
        return [loop for loop in tensor_loops(place, int(at["min_tensors"])) if not loop.is_clipping]

    found = of_loops(run, loops, at["min_share_of_step"])
    if found is None:
        return
    turns = sum(loop.turns for loop in found.of_worst)
    longest = max(found.of_worst, key=lambda loop: loop.end_ns - loop.start_ns)
    yield Finding(
        rule="parameter-loops",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.ns),
        confidence="medium",
        values={"tensors": longest.turns, "body": " ".join(longest.names), **found.time_values("idle")},
        evidence=(
            Measure("turns of these loops a step", turns / found.worst.units, "count"),
            Measure("device idle while the host goes through them", found.ns, "ns"),
        ),
        work=found.work,
        affected_ns=found.ns,
    )
