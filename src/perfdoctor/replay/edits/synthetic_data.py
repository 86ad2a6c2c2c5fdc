"""What changes in the graph when batches cost nothing? The most that any loader's fix can win.

No wait for the loader, none of its work in the training's own threads, no copies of batches, no kernels of data
libraries, nor the calls and threads that do nothing but ask for those, nor waits for any of them. Work that was queued
and started late while the loader's ran is taken to have waited for it. Kernels that ran beside the loader's work take
as long as the same ones of other steps did by themselves, where there are any; at best as the fastest of them all, and
at worst they stay as slow as they were.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask
from perfdoctor.replay.edits import shorter
from perfdoctor.replay.edits.batch_work import brings_batch, held_up_ns, loader_nodes
from perfdoctor.replay.edits.chosen_work import same_piece
from perfdoctor.replay.edits.fused import merged
from perfdoctor.replay.graph.graph import HOST, NOTHING, WAIT_END, WORK, Graph
from perfdoctor.vocabulary.names import cuda as cuda_names


def without_loading(graph: Graph, case: int = 1) -> Graph:
    """The graph of steps whose data is already there. `case`: 0 the least gain, 1 the likely, 2 the most."""
    place = graph.place
    awaited = place.host.explicit.get("input_wait", Intervals.empty()) | place.idle_causes["input_wait"]
    rows = brings_batch(place)
    lighter = shorter.without_loader_waits(shorter.without_host_time(graph, awaited, 1.0), 1.0)
    lighter = merged(lighter, rows, 1.0, Intervals.empty())
    lighter = _waiting_for_nothing(_in_time(lighter, rows, case), graph.of_work(rows))
    return _on_their_own(lighter, loader_nodes(graph), awaited)


def _in_time(graph: Graph, rows: Mask, case: int) -> Graph:
    """The graph in which the removed `rows` of DeviceWork neither delay other work nor make it longer."""
    graph = replace(graph, extra_ns=graph.extra_ns - held_up_ns(graph, rows))
    busy = Intervals.of(graph.place.work.start_ns[rows], graph.place.work.end_ns[rows])
    stays = graph.of_work(~rows)
    start, end = (np.where(stays, each, 0) for each in (graph.recorded_start_ns, graph.recorded_end_ns))
    beside = stays & (busy.overlap_ns(start, end) > 0)
    if case == 0 or not beside.any():
        return graph
    alone_ns = _by_themselves(graph, beside, stays & ~beside, fastest=case > 1)
    return replace(graph, duration_ns=np.where(beside, np.minimum(alone_ns, graph.duration_ns), graph.duration_ns))


def _by_themselves(graph: Graph, beside: Mask, alone: Mask, *, fastest: bool) -> Ints:
    """Duration of each node if it ran alone: that of the same piece in other steps; its own if none was alone.

    `fastest`: the least that any of them took.
    """
    rows = np.flatnonzero(beside | alone)
    piece = same_piece(graph.place)[graph.work_row[rows]]
    found: Ints = graph.duration_ns.copy()
    order = np.argsort(piece, kind="stable")
    for group in np.split(rows[order], np.flatnonzero(np.diff(piece[order])) + 1):
        quiet = graph.duration_ns[group[alone[group]]]
        if fastest:
            found[group] = graph.duration_ns[group].min()
        elif quiet.size:
            found[group] = int(np.median(quiet))
    return found


def _waiting_for_nothing(graph: Graph, gone: Mask) -> Graph:
    """The graph in which nothing waits for this work; a wait for the whole stream waits for the work left there."""
    second, before, third = graph.depends[1].copy(), graph.before[1].copy(), graph.depends[2]
    waits = np.flatnonzero((graph.kind == WAIT_END) & _on(second, gone))
    other, left = _last_of(graph, waits, (graph.kind == WORK) & ~gone)
    names = graph.place.timeline.calls.name
    called = graph.call_row[waits]
    of_event = (called != UNKNOWN) & names.matches(cuda_names.WAITS_FOR_EVENT)[called] if waits.size else left
    second[waits] = np.where(left & ~of_event, other, NOTHING)
    before[waits] = False
    return replace(
        graph,
        depends=(graph.depends[0], second, np.where(gone | _on(third, gone), NOTHING, third)),
        lag_ns=(np.where(gone, 0, graph.lag_ns[0]), *graph.lag_ns[1:]),
        before=(graph.before[0], before, graph.before[2]),
        extra_ns=np.where(gone | np.isin(np.arange(len(graph)), waits), 0, graph.extra_ns),
    )


def _on_their_own(graph: Graph, of_loader: Mask, awaited: Intervals) -> Graph:
    """The graph without the calls `of_loader` threads; the threads that they woke go on after their own calls."""
    if not of_loader.any():
        return graph
    depends = [np.where(_on(each, of_loader) | of_loader, NOTHING, each) for each in graph.depends]
    before, lag = [each.copy() for each in graph.before], [np.where(of_loader, 0, each) for each in graph.lag_ns]
    woken = np.flatnonzero((graph.kind == HOST) & ~of_loader & _on(graph.depends[0], of_loader))
    calls = (graph.kind != WORK) & ~of_loader
    other, found = _last_of(graph, woken, calls)
    over = np.flatnonzero(calls)[-1] if calls.any() else NOTHING
    depends[0][woken], before[0][woken] = np.where(found, other, over), ~found
    since = np.where(found, graph.recorded_end_ns[np.maximum(other, 0)], graph.gap_start_ns[woken])
    waited = awaited.overlap_ns(since, graph.recorded_start_ns[woken])
    lag[0][woken] = np.where(found, np.maximum(graph.recorded_start_ns[woken] - since - waited, 0), lag[0][woken])
    # What does nothing stays where it is.
    depends[0], before[0] = np.where(of_loader, np.arange(len(graph)), depends[0]), before[0] | of_loader
    return replace(
        graph,
        depends=(depends[0], depends[1], depends[2]),
        before=(before[0], before[1], before[2]),
        lag_ns=(lag[0], lag[1], lag[2]),
        duration_ns=np.where(of_loader, 0, graph.duration_ns),
        extra_ns=np.where(of_loader, 0, graph.extra_ns),
    )


def _on(depends: Ints, chosen: Mask) -> Mask:
    """One bool a node: does it depend on a chosen one?"""
    on: Mask = (depends != NOTHING) & chosen[np.maximum(depends, 0)]
    return on


def _last_of(graph: Graph, nodes: Ints, among: Mask) -> tuple[Ints, Mask]:
    """For each of these nodes the one `among` those that ended last before it began or was over; is there one?"""
    candidates = np.flatnonzero(among)
    candidates = candidates[np.argsort(graph.recorded_end_ns[candidates], kind="stable")]
    if not candidates.size:
        return np.full(nodes.size, NOTHING), np.zeros(nodes.size, dtype=bool)
    at = np.searchsorted(graph.recorded_end_ns[candidates], graph.recorded_start_ns[nodes], side="right") - 1
    found = candidates[np.maximum(at, 0)]
    return found, (at >= 0) & (found < nodes)
