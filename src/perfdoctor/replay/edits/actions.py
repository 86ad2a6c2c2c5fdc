"""What does a fix make shorter? A rule names an action, a finding says how far it goes.

An action shortens one kind of node: the stretches of host time of one cause, all host time (`host_pace`), waits for
the device (`waits`), kernels, copies or collectives. `fused` is kernels and copies that are no longer launched, and
what the host does to launch them. `lateness` is what the late rank does more of than the others. A finding's
saving says how much of their time a fix takes away at least, likely and at most; the replayed step shows how much
shorter it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from perfdoctor.metrics.accounting.behind_idle import host_rows
from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.accounting.queued import blocking_rows
from perfdoctor.metrics.communication.collectives import transfer_share
from perfdoctor.metrics.communication.lateness import excess_ns, parts_ns
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.finding_rows import thread_time
from perfdoctor.metrics.host.pace import paced_waiting_ns
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats, Mask
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.replay.edits import shorter as edits
from perfdoctor.replay.edits.chosen_work import chosen_of, spread, work_rows
from perfdoctor.replay.edits.fused import beside_ns, merged
from perfdoctor.replay.graph.graph import WORK, Graph
from perfdoctor.replay.graph.without_gpu import with_fewer_collectives
from perfdoctor.vocabulary.names import torch as torch_names

#: Actions that move work of the device, and the frames of a place that `Finding.work` is about, one behind the other.
WORK_SIGNALS = {
    "kernels": ("kernels",),
    "copies": ("copies",),
    "collectives": ("collectives",),
    "fused": ("kernels", "copies"),
}
#: Actions that go all the way in a share of the steps, and not at all in the others: a value that is read in one of
#: fifty steps is waited for in that one, and half a wait there is none.
WHOLLY = frozenset({"waits"})
#: The idle cause of actions that are called otherwise.
_CAUSES = {"host_pace": "launch_bound", "waits": "host_sync"}
#: Behind a wait the device stays dry until the next launch has reached it.
_REFILL_NS = 50_000

Edit = Callable[[Graph, float], Graph]


def edit_of(action: str, finding: Finding, run: Run) -> Edit:
    """The edit that takes a share of the action's work out of a graph of this run."""
    if finding.thread_time:
        return lambda graph, share: edits.without_host_time(graph, thread_time(graph.place, finding), share)
    if action == "host_pace":
        return lambda graph, share: edits.with_faster_host(graph, share, _no_launching(graph.place))
    if action == "waits":

        def without_waits(graph: Graph, share: float) -> Graph:
            waits = _idle_waits(graph.place) if finding.waits is None else finding.waits
            if not share:
                return graph
            return edits.without_host_time(edits.without_waits(graph, waits), _reads(graph.place, waits), 1.0)

        return without_waits
    if action == "lateness":
        return _coming_in_time(finding, run)
    if finding.changes:
        return _kernel_by_kernel(finding)
    if action in WORK_SIGNALS:

        @once_per_place
        def rows(place: Place) -> Mask:
            return work_rows(place, WORK_SIGNALS[action], finding.work)

        if action == "fused":
            return lambda graph, share: merged(graph, rows(graph.place), share, _no_ops(graph.place))
        if action == "collectives":
            return lambda graph, share: _without_communication(graph, rows(graph.place), share)
        return lambda graph, share: edits.with_shorter_work(graph, rows(graph.place), share)
    return lambda graph, share: _without_cause(graph, action, share)


def affected_ns(action: str, finding: Finding, run: Run) -> int:
    """Ns a step that the action can shorten, on the mean of the places, counted as the finding counts its saving."""
    if finding.affected_ns:
        return finding.affected_ns
    if action == "host_pace":
        return run.mean(lambda place: place.idle_ns(_CAUSES[action])) + paced_waiting_ns(run, "launch_bound")
    if action == "waits":
        return run.mean(lambda place: place.idle_ns(_CAUSES[action]))
    if action == "lateness":
        return finding.saving_ns_per_step.likely
    if action in WORK_SIGNALS:
        moved = run.mean(lambda place: _work_ns(place, action, finding))
        return int(moved * transfer_share(run)) if action == "collectives" else moved
    return run.mean(lambda place: place.idle_ns(action))


def own_ns(action: str, finding: Finding, graph: Graph) -> tuple[float, float]:
    """Ns a step of what the action makes shorter: in the simulated steps of a graph, and in all steps of its place."""
    place = graph.place
    if action in WORK_SIGNALS:
        rows = np.flatnonzero(work_rows(place, WORK_SIGNALS[action], finding.work))
        starts, ends = place.work.start_ns[rows], place.work.end_ns[rows]
    else:
        cause = _CAUSES.get(action, action)
        starts, ends = place.idle_causes[cause].starts, place.idle_causes[cause].ends
    edges = place.steps.even_bounds
    step = np.searchsorted(edges, starts, side="right") - 1
    inside = (step >= 0) & (step < edges.size - 1)
    of_steps = np.bincount(step[inside], weights=(ends - starts)[inside], minlength=edges.size - 1)
    return float(of_steps[-graph.units :].mean()), float(of_steps.mean())


def most_ns(action: str, finding: Finding, run: Run, graphs: Sequence[Graph]) -> tuple[int, int, int]:
    """Ns a step that a fix may save in each case.

    Shorter work saves no more than it is shorter; work that is no longer launched saves the host's part in it as well.
    How much of the host's time hides other waits is unknown.
    """
    saving = finding.saving_ns_per_step
    low, likely, high = saving.low, saving.likely, saving.high
    if not finding.thread_time and action not in (*WHOLLY, *WORK_SIGNALS):
        return high, high, high
    if finding.thread_time or action != "fused":
        return low, likely, high
    beside = [
        beside_ns(graph, work_rows(graph.place, WORK_SIGNALS[action], finding.work), _no_ops(graph.place)) / graph.units
        for graph in graphs
    ]
    parts = shares(saving, affected_ns(action, finding, run))
    low, likely, high = (
        ns + int(part * float(np.mean(beside))) for ns, part in zip((low, likely, high), parts, strict=True)
    )
    return low, likely, high


def _kernel_by_kernel(finding: Finding) -> Edit:
    """An edit by which each kernel changes by its own share, and the host does more in front of some launches."""
    levels = shares(finding.saving_ns_per_step, finding.affected_ns)

    @once_per_place
    def of_work(place: Place, first: int) -> tuple[list[Floats], list[Floats]]:
        """The share of time saved and the host ns added in each case, by row of DeviceWork from `first` on."""
        changes = finding.changes.get(place.rank_and_device)
        columns = (changes.shorter, changes.host_ns) if changes else ((), ())
        shorter, host_ns = ([spread(place, "kernels", case)[first:].copy() for case in column] for column in columns)
        return shorter, host_ns

    def edit(graph: Graph, share: float) -> Graph:
        first = graph.first_work
        shorter, host_ns = of_work(graph.place, first)
        if not shorter:
            return graph
        changed = edits.with_changed_work(graph, np.minimum(_between(levels, shorter, share), 1.0), first)
        return edits.with_slower_launches(changed, _between(levels, host_ns, share), first)

    return edit


def _between(levels: Sequence[float], cases: Sequence[Floats], share: float) -> Floats:
    """The values at this share, interpolated between `cases` at `levels` (ascending); in proportion beyond them.

    Zeros if the likely saving is zero.
    """
    if not levels[1]:
        return 0 * cases[1]
    if share in levels:
        return cases[1] if share == levels[1] else cases[levels.index(share)]
    above = next((number for number, level in enumerate(levels) if level > share), None)
    if above is None:
        return cases[-1] * (share / levels[-1] if levels[-1] else 1.0)
    if above == 0:
        return cases[0] * (share / levels[0])
    part = (share - levels[above - 1]) / (levels[above] - levels[above - 1])
    return cases[above - 1] * (1 - part) + cases[above] * part


def _without_communication(graph: Graph, rows: Mask, share: float) -> Graph:
    """The graph with shorter collectives, and fewer if host threads send them, as each message has its own cost."""
    shorter = edits.with_shorter_work(graph, rows, share)
    if not isinstance(graph.place, HostPlace):
        return shorter
    return with_fewer_collectives(edits.without_host_time(shorter, graph.place.own_communication, share), share)


@once_per_place
def _of_cause(place: Place, cause: str) -> Intervals:
    return place.host.explicit.get(cause, Intervals.empty()) | place.idle_causes[cause]


def _without_cause(graph: Graph, cause: str, share: float) -> Graph:
    shorter = edits.without_host_time(graph, _of_cause(graph.place, cause), share)
    return edits.without_loader_waits(shorter, share) if cause == "input_wait" else shorter


def _coming_in_time(finding: Finding, run: Run) -> Edit:
    """An edit by which the late rank does no more than the others, which stay as they are."""
    matched, late = skew(run), [place for place in run.places if place.rank_and_device in finding.work]
    if matched is None or not late:
        return lambda graph, _: graph
    places = [place for place in run.places if matched.has(place.rank) and len(place.collectives)]
    own, excess = parts_ns(late[0], matched), excess_ns(places, matched)[late[0].rank]
    # The share of each activity by which it exceeds the median of the others.
    parts = {name: min(ns / own[name], 1.0) for name, ns in excess.items() if ns and own[name]}
    return lambda graph, share: _in_time(graph, parts, share) if graph.place is late[0] else graph


def _in_time(graph: Graph, parts: Mapping[str, float], share: float) -> Graph:
    """The graph with `share` of these parts taken out of computing, copying and idle time by cause."""
    for name, part in parts.items():
        if name == "compute" and graph.place.device is None:  # without a GPU it is the thread that computes
            graph = edits.without_host_time(graph, graph.place.compute, share * part)
        elif name in ("compute", "copies"):
            rows = work_rows(graph.place, ("kernels" if name == "compute" else "copies",), {})
            graph = edits.with_shorter_work(graph, rows, share * part)
        else:
            graph = _without_idle(graph, graph.place.idle_causes[name], share * part)
            graph = edits.without_loader_waits(graph, share * part) if name == "input_wait" else graph
    return graph


def _without_idle(graph: Graph, idle: Intervals, share: float) -> Graph:
    """The graph without host time in these stretches, and without unexplained waits of device work there."""
    shorter = edits.without_host_time(graph, idle, share)
    start = graph.recorded_start_ns
    waited = np.where(graph.kind == WORK, idle.overlap_ns(start - graph.extra_ns, start), 0)
    return replace(shorter, extra_ns=graph.extra_ns - (share * waited).astype(np.int64))


@once_per_place
def _no_launching(place: Place) -> Intervals:
    """The time in which the host does not launch work: it loads, saves, collects, compiles, or waits for others."""
    other = place.host.profiler | place.idle_causes["input_wait"]
    for stretches in place.host.explicit.values():
        other = other | stretches
    return other


@once_per_place
def _no_ops(place: Place) -> Intervals:
    """The time in which the host does not launch work, and that of its own work outside of all operations."""
    return _no_launching(place) | place.idle_causes["host_work"]


@once_per_place
def _idle_waits(place: Place) -> Mask:
    """One bool a row of `timeline.calls`: does the host wait in it, and does the device run out of work after it?"""
    calls = place.timeline.calls
    waits = blocking_rows(place.host, place.work)
    idle = place.idle_causes["host_sync"] | place.exposed_communication
    rows = np.zeros(len(calls), dtype=bool)
    rows[waits] = idle.overlap_ns(calls.start_ns[waits], calls.end_ns[waits] + _REFILL_NS) > 0
    return rows


def _reads(place: Place, waits: Mask) -> Intervals:
    """When the host was in ops that only read the values which these calls wait for: without them none is called."""
    ops = host_rows(place, ("ops",))
    ops = ops.take(ops.name.matches(torch_names.ONLY_READS_VALUE))
    waited = np.sort(place.timeline.calls.start_ns[waits])
    first, behind = (np.searchsorted(waited, edge) for edge in (ops.start_ns, ops.end_ns))
    return ops.take(behind > first).intervals


def _work_ns(place: Place, action: str, finding: Finding) -> int:
    """Ns of the window in which the chosen work alone keeps the device."""
    rows = chosen_of(place, WORK_SIGNALS[action], finding.work)
    if action in ("kernels", "fused"):
        return place.alone_ns(rows[: len(place.kernels)])
    frame = (place.copies if action == "copies" else place.collectives).take(rows)
    exposed = place.exposed_copies if action == "copies" else place.exposed_communication
    return (exposed & frame.intervals).total_ns


def shares(saving: Saving, affected: int) -> tuple[float, float, float]:
    """The share of the `affected` ns that the action takes away in each case of the saving: at most 1."""
    if affected <= 0:
        return 0.0, 0.0, 0.0
    return min(saving.low / affected, 1.0), min(saving.likely / affected, 1.0), min(saving.high / affected, 1.0)
