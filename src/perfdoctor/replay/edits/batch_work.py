"""Which work brings the next batch? Kernels of loaders that run on the GPU, copies from the host, who asks for them.

A copy from the host is the batch's unless the optimizer asked for it, or what brings back parameters that are kept on
the host, or all copies of its size together are too small to be one: a scalar, a seed. Copies on the device (a loader's
output to a tensor) are not told from the training's own.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.communication.collectives import launched_in
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launch_rows
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask
from perfdoctor.replay.edits.chosen_work import part_of_step
from perfdoctor.replay.graph.graph import WORK, Graph
from perfdoctor.replay.graph.ranks import device_rows, recorded
from perfdoctor.vocabulary.names import loaders as loader_names
from perfdoctor.vocabulary.names import torch as torch_names

#: Copies of one size that together carry less of the bytes from the host are no batch.
_BATCH_SHARE = 0.01


def loader_kernels(place: Place) -> Mask:
    """One bool a row of DeviceWork: is it a kernel of a library that prepares data?"""
    return _of_work(place, "kernels", recorded(place, "kernels").name.matches(loader_names.LOADER_KERNEL))


def batch_copies(place: Place) -> Mask:
    """One bool a row of DeviceWork: does it copy a batch, or a piece of one, from the host?"""
    copies = recorded(place, "copies")
    size = np.maximum(copies["bytes"], 0)
    alike = np.unique(copies["bytes"], return_inverse=True)[1].ravel()
    from_host = copies.text("direction").equals("h2d") & ~_of_parameters(place, copies, alike)
    together = np.bincount(alike, weights=np.where(from_host, size, 0)) if size.size else np.empty(0)
    large = (together[alike] >= _BATCH_SHARE * size[from_host].sum()) | (copies["bytes"] == UNKNOWN)
    return _of_work(place, "copies", from_host & large)


def _of_parameters(place: Place, copies: Frame, alike: Ints) -> Mask:
    """One bool a copy: asked for by the optimizer, or for parameters? Without a call, as most others of its size."""
    told = launched_in(place, copies, torch_names.OPTIMIZER_RANGE, "ranges", "ops")
    told |= launched_in(place, copies, torch_names.FETCHES_PARAMETERS, "ranges", "ops", "functions")
    linked = launch_rows(copies, place.timeline.calls) != UNKNOWN
    many = int(alike.max(initial=-1)) + 1
    of_all, of_told = (np.bincount(alike[each], minlength=many) for each in (linked, told))
    found: Mask = told | (~linked & (2 * of_told > of_all)[alike])
    return found


def loader_threads(place: Place) -> tuple[int, ...]:
    """Threads that ask for nothing but batches: loaders' kernels, and copies from the host, large or small."""
    calls, work = place.timeline.calls, place.work
    rows = np.flatnonzero(work.launch != UNKNOWN)
    thread = calls["thread"][work.launch[rows]]
    loaders = loader_kernels(place)[rows] | work.is_h2d[rows]
    brings = (loader_kernels(place) | batch_copies(place))[rows]
    return tuple(
        each for each in np.unique(thread).tolist() if loaders[thread == each].all() and brings[thread == each].any()
    )


def loader_nodes(graph: Graph) -> Mask:
    """One bool a node: is it a call of a loader's thread, or the end of one?"""
    threads = loader_threads(graph.place)
    if not threads:
        return np.zeros(len(graph), dtype=bool)
    calls = graph.place.timeline.calls
    found: Mask = (graph.kind != WORK) & np.isin(calls["thread"][np.maximum(graph.call_row, 0)], threads)
    return found


def held_up_ns(graph: Graph, by: Mask) -> Ints:
    """How long each piece of work that could have started waited while these rows of DeviceWork ran, in ns."""
    busy = Intervals.of(graph.place.work.start_ns[by], graph.place.work.end_ns[by])
    start = np.where(graph.kind == WORK, graph.recorded_start_ns, 0)
    waited = busy.overlap_ns(np.where(graph.kind == WORK, start - graph.extra_ns, 0), start)
    held_up: Ints = np.minimum(waited, graph.extra_ns)
    return held_up


def brings_batch(place: Place) -> Mask:
    """One bool a row of DeviceWork: loaders' kernels, batches from the host, and all else that loaders' threads ask."""
    launch = place.work.launch
    thread = place.timeline.calls["thread"][np.maximum(launch, 0)] if len(place.timeline.calls) else launch
    asked = (launch != UNKNOWN) & np.isin(thread, loader_threads(place))
    found: Mask = loader_kernels(place) | batch_copies(place) | asked
    return found


def same_piece(place: Place) -> Ints:
    """For each row of DeviceWork a number that the same piece of every step has: the so many-th of its name there."""
    pieces, so_far = np.full(len(place.work), UNKNOWN), 0
    for signal, rows in device_rows(place).items():
        frame = recorded(place, signal)
        if not rows.size:
            continue
        step = np.searchsorted(place.steps.even_bounds, frame.start_ns, side="right")
        name, number = part_of_step(frame, step).T
        _, piece = np.unique(name * len(frame) + number, return_inverse=True)
        pieces[rows] = so_far + piece
        so_far += int(piece.max()) + 1
    return pieces


def _of_work(place: Place, signal: str, rows: Mask) -> Mask:
    """Rows of a signal's frame of this device, as rows of DeviceWork."""
    found = np.zeros(len(place.work), dtype=bool)
    found[device_rows(place)[signal][rows]] = True
    return found
