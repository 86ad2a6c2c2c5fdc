"""Which work brings the next batch? Kernels of loaders that run on the GPU, and copies from the host.

A copy from the host is the batch's unless the optimizer launched it, or code that fetches parameters kept on the host,
or all copies of its size together are too small to be one: a scalar, a seed. Copies on the device (a loader's
output to a tensor) are not distinguished from the training's own.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.cache import once_per_place
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launches, recorded_launches
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask
from perfdoctor.replay.graph.graph import WORK, Graph
from perfdoctor.vocabulary.names import loaders as loader_names
from perfdoctor.vocabulary.names import torch as torch_names

#: Copies of one size that together carry less of the bytes from the host are no batch.
_BATCH_SHARE = 0.01


@once_per_place
def loader_kernels(place: Place) -> Mask:
    """One bool a row of DeviceWork: is it a kernel of a library that prepares data?"""
    return _of_work(place, "kernels", place.recorded("kernels").name.matches(loader_names.LOADER_KERNEL))


@once_per_place
def batch_copies(place: Place) -> Mask:
    """One bool a row of DeviceWork: does it copy a batch, or a piece of one, from the host?"""
    copies = place.recorded("copies")
    size = np.maximum(copies["bytes"], 0)
    alike = np.unique(copies["bytes"], return_inverse=True)[1].ravel()
    from_host = copies.text("direction").equals("h2d") & ~_of_parameters(place, alike)
    together = np.bincount(alike, weights=np.where(from_host, size, 0)) if size.size else np.empty(0)
    large = (together[alike] >= _BATCH_SHARE * size[from_host].sum()) | (copies["bytes"] == UNKNOWN)
    return _of_work(place, "copies", from_host & large)


def _of_parameters(place: Place, alike: Ints) -> Mask:
    """One bool a copy: is it the optimizer's, or of parameters? Without a known call it is as most copies of its size.

    `alike`: for each copy a number that all copies of its size have.
    """
    launched = recorded_launches(place, "copies")
    proven = launched.while_open(torch_names.OPTIMIZER_RANGE, "ranges", "ops")
    proven |= launched.while_open(torch_names.FETCHES_PARAMETERS, "ranges", "ops", "functions")
    many = int(alike.max(initial=-1)) + 1
    of_all, of_proven = (np.bincount(alike[each], minlength=many) for each in (launched.known, proven))
    return proven | (~launched.known & (2 * of_proven > of_all)[alike])


@once_per_place
def loader_threads(place: Place) -> tuple[int, ...]:
    """The threads that launch nothing but batches' work: loaders' kernels, and copies from the host of any size."""
    known, kernels = launches(place).known, loader_kernels(place)
    thread = launches(place).thread[known]
    loaders, brings = (kernels | place.work.is_h2d)[known], (kernels | batch_copies(place))[known]
    return tuple(
        each for each in np.unique(thread).tolist() if loaders[thread == each].all() and brings[thread == each].any()
    )


def loader_nodes(graph: Graph) -> Mask:
    """One bool a node: is it a call of a loader's thread, or the end of one?"""
    threads = loader_threads(graph.place)
    if not threads:
        return np.zeros(len(graph), dtype=bool)
    calls = graph.place.timeline.calls
    of_threads = np.isin(calls["thread"][np.maximum(graph.call_row, 0)], threads)
    found: Mask = (graph.kind != WORK) & (graph.call_row != UNKNOWN) & of_threads
    return found


def held_up_ns(graph: Graph, by: Mask) -> Ints:
    """Ns that each node of work waited, though it could have started, while the rows `by` of DeviceWork ran."""
    busy = Intervals.of(graph.place.work.start_ns[by], graph.place.work.end_ns[by])
    late = np.flatnonzero((graph.kind == WORK) & (graph.extra_ns != 0))
    start, extra = graph.recorded_start_ns[late], graph.extra_ns[late]
    held_up = np.zeros(len(graph), np.int64)
    held_up[late] = np.minimum(busy.overlap_ns(start - extra, start), extra)
    return held_up


def brings_batch(place: Place) -> Mask:
    """One bool a row of DeviceWork: is it a loader's kernel, a batch, or other work that loaders' threads launch?"""
    asked = launches(place).known & np.isin(launches(place).thread, loader_threads(place))
    return loader_kernels(place) | batch_copies(place) | asked


def _of_work(place: Place, signal: str, rows: Mask) -> Mask:
    """Rows of a signal's frame of this device, as rows of DeviceWork."""
    found = np.zeros(len(place.work), dtype=bool)
    found[place.work.rows[signal][rows]] = True
    return found
