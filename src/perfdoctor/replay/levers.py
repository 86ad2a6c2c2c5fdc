"""What does a cure make shorter? A rule names a lever, a finding tells how far it goes.

A lever is a kind of node: the stretches of host time of one cause, all host time (`host_pace`), waits for the device
(`waits`), kernels, copies or collectives. A finding's saving says how much of their time a cure takes away at least,
likely and at most; played again, the step tells how much of that it wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from perfdoctor.findings import IDLE_CAUSES, Finding
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.collectives import transfer_share
from perfdoctor.metrics.host_pace import paced_waiting_ns
from perfdoctor.metrics.idle_causes import blocking_calls
from perfdoctor.metrics.run import Run
from perfdoctor.replay import edits
from perfdoctor.replay.graph import Graph
from perfdoctor.replay.ranks import device_rows
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.model import Frame, Mask

WORK = ("kernels", "copies", "collectives")
LEVERS = ("host_pace", "waits", *WORK, *IDLE_CAUSES)

Edit = Callable[[Graph, float], Graph]


def edit_of(lever: str, finding: Finding) -> Edit:
    """What pulling this lever by a share does to a graph."""
    if lever == "host_pace":
        return lambda graph, share: edits.with_faster_host(graph, share, _no_issuing(graph.place))
    if lever == "waits":
        return lambda graph, share: edits.without_waits(graph, _idle_waits(graph.place), share)
    if lever in WORK:
        return lambda graph, share: edits.with_shorter_work(graph, work_rows(graph.place, lever, finding), share)
    return lambda graph, share: _without_cause(graph, lever, share)


def pulled_ns(lever: str, finding: Finding, run: Run) -> int:
    """How much time the lever moves, a step and place, counted as the finding counts its saving."""
    if lever == "host_pace":
        return run.mean(lambda place: place.idle_ns("launch_bound")) + paced_waiting_ns(run, "launch_bound")
    if lever == "waits":
        return run.mean(lambda place: place.idle_ns("host_sync"))
    if lever in WORK:
        moved = run.mean(lambda place: _work_ns(place, lever, finding))
        return int(moved * transfer_share(run)) if lever == "collectives" else moved
    return run.mean(lambda place: place.idle_ns(lever))


def _without_cause(graph: Graph, cause: str, share: float) -> Graph:
    place = graph.place
    stretches = place.host.explicit.get(cause, Intervals.empty()) | place.idle_causes[cause]
    shorter = edits.without_host_time(graph, stretches, share)
    return edits.without_loader_waits(shorter, share) if cause == "input_wait" else shorter


def _no_issuing(place: Place) -> Intervals:
    """When the host does something else than issue work: it loads, saves, collects, compiles, or waits for others."""
    other = place.host.profiler | place.idle_causes["input_wait"]
    for stretches in place.host.explicit.values():
        other = other | stretches
    return other


def _idle_waits(place: Place) -> Mask:
    """One bool a row of `timeline.calls`: does the host wait in it, and runs the device dry behind it?"""
    calls = place.timeline.calls
    blocking = blocking_calls(place.host, place.work, calls)
    idle = place.idle_causes["host_sync"]
    dry = idle.overlap_ns(blocking.start_ns, blocking.end_ns + _REFILL_NS) > 0
    keys = _keys(blocking)[dry]
    found: Mask = np.isin(_keys(calls), keys)
    return found


#: Behind a wait the device stays dry until the next launch has reached it.
_REFILL_NS = 50_000


def _keys(calls: Frame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return calls["thread"] * 1_000_003 + calls.start_ns


def _own(place: Place, signal: str) -> Frame:
    return {"kernels": place.kernels, "copies": place.copies, "collectives": place.collectives}[signal]


def _chosen(place: Place, signal: str, finding: Finding) -> Mask:
    """One bool a row of the place's frame; all of them where the finding does not choose."""
    everything: Mask = np.ones(len(_own(place, signal)), dtype=bool)
    return finding.work.get((place.rank, place.device or 0), np.zeros_like(everything)) if finding.work else everything


def _work_ns(place: Place, signal: str, finding: Finding) -> int:
    frame = _own(place, signal).take(_chosen(place, signal, finding))
    if signal == "kernels":
        return int(place.window.overlap_ns(frame.start_ns, frame.end_ns).sum())
    exposed = place.exposed_copies if signal == "copies" else place.exposed_communication
    return (exposed & Intervals.of(frame.start_ns, frame.end_ns)).total_ns


def work_rows(place: Place, signal: str, finding: Finding) -> Mask:
    """One bool a row of DeviceWork: is the finding about it?"""
    assert place.device is not None
    frame = place.timeline[signal].of(rank=place.rank, device=place.device)
    first, last = place.window.starts[0], place.window.ends[-1]
    own = np.flatnonzero((frame.end_ns > first) & (frame.start_ns < last))
    rows = np.zeros(len(place.work), dtype=bool)
    rows[device_rows(place)[signal][own[_chosen(place, signal, finding)]]] = True
    return rows


def shares(saving_ns: Sequence[int], pulled: int) -> list[float]:
    """How far the lever goes for each saving: never further than all the way."""
    return [min(ns / pulled, 1.0) if pulled > 0 else 0.0 for ns in saving_ns]
