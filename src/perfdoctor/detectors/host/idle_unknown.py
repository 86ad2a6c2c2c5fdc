"""The device was idle and the recording does not tell why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.accounting.longest import longest_idle
from perfdoctor.metrics.accounting.queued import graphs_in_flight
from perfdoctor.metrics.machine.several_devices import others_busy
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving

#: Rules of a process with several devices, which say why one stands still while another works.
_SEVERAL_DEVICES = ("data-parallel", "uneven-gpus", "peer-copies")


def _unknown_ns(place: Place) -> int:
    return place.idle_ns("unknown")


def _situation(run: Run) -> str:
    """What the recording lacks: no-calls (nothing of the host), calls-only, or "" (all is there, and not enough)."""
    if "calls" not in run.timeline.recorded:
        return "no-calls"
    return "" if any(place.host.in_view for place in run.places) else "calls-only"


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Idle without proof of its cause. What it would save is what it lasts, with nothing to rely on: low is zero."""
    share = run.share(_unknown_ns)
    if share < at["min_share_of_step"]:
        yield from _inside_graphs(run, at["min_share_of_step"])
        return
    unknown_ns, worst = run.mean(_unknown_ns), run.worst(_unknown_ns)
    yield Finding(
        rule="idle-unknown",
        saving_ns_per_step=saving(unknown_ns, 0.0, 1.0),
        confidence="low",
        values={"idle_ms": ms(unknown_ns), "step_ms": ms(run.step_ns), "idle_percent": percent(share)},
        evidence=(
            Measure("GPU idle without a known cause", unknown_ns, "ns"),
            Measure("stretches a step", len(worst.idle_causes["unknown"]) / worst.units, "count"),
            *longest_idle(run, "unknown"),
        ),
        situation=_situation(run),
        symptom_of=_SEVERAL_DEVICES if 2 * run.mean(lambda place: _beside_ns(run, place)) >= unknown_ns else (),
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
    share = run.share(_in_graphs_ns)
    if share < min_share:
        return
    idle_ns = run.mean(_in_graphs_ns)
    yield Finding(
        rule="idle-unknown",
        saving_ns_per_step=Saving(0, 0, 0),
        confidence="medium",
        values={"idle_ms": ms(idle_ns), "step_ms": ms(run.step_ns), "idle_percent": percent(share)},
        evidence=(Measure("no kernel recorded while a CUDA graph ran", idle_ns, "ns"),),
        situation="inside-graphs",
    )
