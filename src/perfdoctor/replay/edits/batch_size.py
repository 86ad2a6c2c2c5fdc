"""What changes in the graph when each rank's batch has another size? Fixed costs stay, the rest comes with each sample.

```
host, launches, optimizer, zero_grad,        as they were
gradients' collectives
loaders, copies of batches and on the        × factor
device, exchanges of activations
kernels of forward and backward              × waves of blocks then ÷ waves before, at most × factor
```

A wave is what the SMs take at once. How many blocks an SM takes depends on registers and shared memory, which are not
recorded. Likely: one of a kernel that multiplies matrices, for these are written to fill an SM; of others as many as
its threads allow (CUDA C++ Programming Guide, Technical Specifications per Compute Capability). At best: as many of all
kernels. At worst every kernel grows as the batch does, as it also does where no grid was recorded, or where the grid is
that of the weights (`wgrad`). Work that waited for room on the device waits as much longer. Whether the memory holds
such a batch, and whether a loader that keeps up now still does, no recording shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from perfdoctor.metrics.kernels.optimizer import filled_by_zero_grad
from perfdoctor.model.launches import recorded_launches
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Floats, Frame, Ints, Mask
from perfdoctor.replay.edits.batch_work import batch_copies, held_up_ns, loader_kernels, loader_nodes
from perfdoctor.replay.edits.shorter import still_there
from perfdoctor.replay.graph.graph import HOST, NOTHING, WORK, Graph
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names

#: Threads and blocks that an SM takes, by compute capability where they are fewer than on data-centre GPUs.
_THREADS = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (12, 0): 1536}
_BLOCKS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24}
_MOST_THREADS, _MOST_BLOCKS = 2048, 32
_OF_ACTIVATIONS = ("all_to_all", "send_recv")
_Numbers = npt.NDArray[Any]


def with_batch(graph: Graph, factor: float, case: int = 1) -> Graph:
    """The graph with each rank's batch `factor` times as large. `case`: 0 the least gain, 1 the likely, 2 the most."""
    place = graph.place
    of_rows = work_factors(place, factor, case)
    work, durations, transfer = np.flatnonzero(graph.kind == WORK), graph.duration_ns.copy(), graph.transfer_ns
    durations[work] = _whole(of_rows[graph.work_row[work]] * durations[work])
    if graph.collectives.size:
        transfer = _whole(transfer * of_rows[np.maximum(graph.work_row[graph.collectives], 0)])
    # What waited for room on the device waits for more now.
    extra = _longer(graph.extra_ns, (factor - 1) * held_up_ns(graph, of_rows != 1))
    return _with_loading(replace(graph, duration_ns=durations, transfer_ns=transfer, extra_ns=extra), factor)


def _with_loading(graph: Graph, factor: float) -> Graph:
    """The graph with loading `factor` times as long: in the loader's own threads, in the training's, or beside it."""
    of_thread = loader_nodes(graph)
    paced = np.where((graph.loader_wait_ns > 0) & (graph.depends[1] != NOTHING), factor - 1, 0.0)
    # A pace is counted from one batch to the next: it has the call in it that the lag begins behind.
    more = paced * (graph.lag_ns[1] + graph.duration_ns[graph.depends[1]]) if paced.any() else paced
    times = np.where(of_thread, factor, 1.0) if of_thread.any() else None
    in_front = _longer(graph.lag_ns[0], (factor - 1) * _loading_ns(graph), times)
    return replace(
        graph,
        duration_ns=_longer(graph.duration_ns, None, times),
        lag_ns=(in_front, _longer(graph.lag_ns[1], more), graph.lag_ns[2]),
        extra_ns=_longer(graph.extra_ns, None, times),
    )


def _longer(ns: Ints, more_ns: _Numbers | None, times: Floats | None = None) -> Ints:
    """`ns` × `times` + `more_ns`; the same array if neither changes anything, as in most graphs."""
    if times is None and (more_ns is None or not more_ns.any()):
        return ns
    return _whole(ns * (1.0 if times is None else times) + (0.0 if more_ns is None else more_ns))


def _whole(ns: _Numbers) -> Ints:
    return np.rint(ns).astype(np.int64)


def _loading_ns(graph: Graph) -> Floats:
    """Ns of loading that the training's own threads do before each call; 0 if the loader has a pace of its own."""
    loading = np.zeros(len(graph))
    if graph.awaited or not graph.place.host.explicit.get("input_wait"):
        return loading
    host = graph.kind == HOST
    begin, end = (np.where(host, each, 0) for each in (graph.gap_start_ns, graph.gap_end_ns))
    for piece, part in still_there(graph, graph.place.host.explicit["input_wait"], 1.0):
        loading += part * piece.overlap_ns(begin, end)
    return loading


def work_factors(place: Place, factor: float, case: int) -> Floats:
    """The factor by which each row of DeviceWork takes longer."""
    factors = np.ones(len(place.work))
    rows = place.work.rows
    factors[rows["kernels"]] = _of_kernels(place, factor, case)
    copies = place.recorded("copies")
    on_device = copies.text("direction").equals("d2d", "p2p", "memset")  # those from and to the host: below
    factors[rows["copies"]] = np.where(on_device & ~_of_parameters(place, "copies"), factor, 1.0)
    kinds = place.recorded("collectives").text("kind")
    factors[rows["collectives"]] = np.where(kinds.equals(*_OF_ACTIVATIONS), factor, 1.0)
    factors[loader_kernels(place) | batch_copies(place)] = factor
    return factors


def _of_kernels(place: Place, factor: float, case: int) -> Floats:
    kernels = place.recorded("kernels")
    fixed = _of_parameters(place, "kernels") | kernels.name.matches(kernel_names.OVER_PARAMETERS)
    fixed |= kernels.name.has(kernel_names.family, "optimizer")
    waves = _waves(place, kernels, factor, everywhere_full=case == (2 if factor > 1 else 0))
    certain = case == (0 if factor > 1 else 2)  # every kernel changes as the batch does
    return np.where(fixed, 1.0, factor if certain else waves)


def _of_parameters(place: Place, signal: str) -> Mask:
    """One bool a recorded row of this signal: did the optimizer launch it, or `zero_grad`?"""
    launched = recorded_launches(place, signal)
    return launched.while_open(torch_names.OPTIMIZER_RANGE, "ranges", "ops") | filled_by_zero_grad(launched)


def _waves(place: Place, kernels: Frame, factor: float, *, everywhere_full: bool) -> Floats:
    """The factor by which each kernel takes longer if its time is that of its waves; never more than `factor`."""
    blocks, threads = kernels["blocks"], kernels["threads_per_block"]
    capability, sms = place.info.compute_capability, place.info.sm_count
    most = _THREADS.get(capability, _MOST_THREADS) // np.maximum(threads, 1)
    a_sm = np.clip(most, 1, _BLOCKS.get(capability, _MOST_BLOCKS))
    if not everywhere_full:
        matmul = kernels.name.has(kernel_names.family, *MATMUL_FAMILIES)
        a_sm = np.where(matmul, 1, a_sm)
    at_once = np.maximum(sms * a_sm, 1)
    growth = np.ceil(np.ceil(factor * blocks) / at_once) / np.ceil(np.maximum(blocks, 1) / at_once)
    known = (blocks > 0) & (threads > 0) & (sms > 0) & ~kernels["is_graph"]
    growth = np.where(known & ~kernels.name.matches(kernel_names.GRID_OF_WEIGHTS), growth, factor)
    return np.minimum(growth, factor) if factor > 1 else np.maximum(growth, factor)
