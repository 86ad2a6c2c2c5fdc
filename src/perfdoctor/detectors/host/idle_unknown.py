"""The device was idle and the recording does not tell why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.affected import MOST_OF_IT, affected
from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.savings import NO_SAVING, Shares
from perfdoctor.metrics.accounting.longest import longest_idle
from perfdoctor.metrics.accounting.queued import graphs_in_flight
from perfdoctor.metrics.machine.several_devices import others_busy
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure

#: Rules of a process with several devices, which say why one stands still while another works.
_SEVERAL_DEVICES = ("data-parallel", "uneven-gpus", "peer-copies")


def _situation(run: Run) -> str:
    """What the recording lacks: no-calls (nothing of the host), calls-only, or "" (all is there, and not enough)."""
    if "calls" not in run.timeline.recorded:
        return "no-calls"
    return "" if any(place.host.in_view for place in run.places) else "calls-only"


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Idle without proof of its cause. What it would save is what it lasts, with nothing to rely on: low is zero."""
    found = of_cause(run, "unknown", at["min_share_of_step"])
    if found is None:
        yield from _inside_graphs(run, at["min_share_of_step"])
        return
    beside_ns = run.mean(lambda place: _beside_ns(run, place))
    yield Finding(
        rule="idle-unknown",
        saving_ns_per_step=Shares(0.0, 1.0).of(found.ns),
        confidence="low",
        values=found.time_values("idle"),
        evidence=(
            Measure("GPU idle without a known cause", found.ns, "ns"),
            Measure("stretches a step", found.times_per_step, "count"),
            *longest_idle(run, "unknown"),
        ),
        situation=_situation(run),
        symptom_of=_SEVERAL_DEVICES if beside_ns >= MOST_OF_IT * found.ns else (),
    )


def _beside_ns(run: Run, place: Place) -> int:
    """Unknown idle while another device of the process worked: what is queued here waits for that one, most likely."""
    return (place.idle_causes["unknown"] & others_busy(run, place)).total_ns


def _in_graphs_ns(place: Place) -> int:
    if not place.host.graph_nodes_recorded:
        return 0
    return (place.idle_causes["queue_latency"] & graphs_in_flight(place.work, place.timeline.calls)).total_ns


def _inside_graphs(run: Run, min_share: float) -> Iterator[Finding]:
    """Not idle at all, most likely: kernels of CUDA graphs that the profiler lost. Nothing to win, but to know."""
    found = affected(run, _in_graphs_ns, min_share)
    if found is None:
        return
    yield Finding(
        rule="idle-unknown",
        saving_ns_per_step=NO_SAVING,
        confidence="medium",
        values=found.time_values("idle"),
        evidence=(Measure("no kernel recorded while a CUDA graph ran", found.ns, "ns"),),
        situation="inside-graphs",
    )
