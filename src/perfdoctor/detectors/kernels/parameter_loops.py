"""Python updates tensors one by one outside the optimizer, and the device waits meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_idle
from perfdoctor.detectors.savings import shares
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.host.tensor_loops import TensorLoop, idle_behind, inside, spans_of, tensor_loops
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


@once_per_place
def _loops(place: Place, fewest_tensors: int) -> list[TensorLoop]:
    return [loop for loop in tensor_loops(place, fewest_tensors) if not loop.is_clipping]


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Averages of weights, updates written by hand; clipping and Optimizer.step have rules of their own."""

    def loops(place: Place) -> list[TensorLoop]:
        return _loops(place, int(at["min_tensors"]))

    found = of_idle(run, at["min_share_of_step"], lambda place: idle_behind(place, loops(place)))
    if found is None:
        return
    turning = inside(found.worst, loops(found.worst))
    longest = max(turning, key=lambda loop: loop.end_ns - loop.start_ns)
    yield Finding(
        rule="parameter-loops",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.ns),
        confidence="medium",
        values={
            "tensors": longest.turns,
            "body": " ".join(longest.names),
            "idle_ms": ms(found.ns),
            "step_ms": ms(run.step_ns),
            "idle_percent": percent(found.share),
        },
        evidence=(
            Measure("turns of these loops a step", sum(loop.turns for loop in turning) / found.worst.units, "count"),
            Measure("device idle while the host goes through them", found.ns, "ns"),
        ),
        work=work_of(run, lambda place: launches_of(place, "kernels").within(spans_of(loops(place)))),
        affected_ns=found.ns,
    )
