"""What does PyTorch's autocast change beside products? Casts in front of them, and the bytes of what lies between them.

Going by the ops that autocast keeps in fp32 (docs.pytorch.org/docs/stable/amp.html) and by the order of the kernels on
their stream: the result of a product has 16 bits, what follows it works on 16 bits up to the first op that is kept in
fp32, and that needs a cast first. A cast reads 4 bytes a number and writes 2. A product casts its weight, once a step,
and its other factor where that is in fp32; in training the backward pass casts each gradient back.

```
on 16 bits          half of its bytes
sum with fp32       reads 2 + 4, writes 4 bytes a number instead of 12: 10 of 12
kept in fp32        as now, and behind 16 bits a cast more: 6 bytes a number, of the 8 that it moves itself
```
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.queued import LONGEST_LAUNCH_NS
from perfdoctor.metrics.kernels.chains import stream_order
from perfdoctor.metrics.kernels.optimizer import in_optimizer
from perfdoctor.metrics.work.device_peaks import kernel_floor_ns
from perfdoctor.metrics.work.half_precision import (
    ReachedRates,
    half_ns,
    half_products,
    memory_rate,
    sizes,
    wide_products,
    wide_rows,
)
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Floats, Ints, Mask, distinct, occurring
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names

_ON_ACTIVATIONS = ("elementwise", "normalization", "reduction")
_CAST_BYTES = 4 + 2
#: Of the time that a kernel takes beyond its start, by the table above.
_ON_HALF, _SUM, _CAST_OF_KEPT = 2 / 4, 10 / 12, 6 / 8
#: Behind which type of result does a kernel come? Of fp32, or of 16 bits, by autocast; everything begins in fp32.
_WIDE, _HALF = 0, 1


class Autocast(Struct, frozen=True):
    """For each of `place.kernels`: `ns` that it takes under autocast, inside the window, casts in front of it included;
    `casts`, how many ops these are; and `host_ns`, what they take of the host.
    """

    ns: Floats
    casts: Floats
    host_ns: Floats


def autocast(place: Place, reached: ReachedRates, case: str) -> Autocast:
    """What each kernel and its casts take under autocast. `case`: low, likely or high, of savings.

    At least nothing but products gets faster, and a cast takes as much of the host as `cast_cost_ns` allows; at most
    nothing needs a cast, as with weights in 16 bits.
    """
    flow, wide = _flow(place), wide_products(place)
    casts = np.where(wide, _casts(place), _kept(place) & (flow == _HALF))
    scale = _beside(place, flow, case)
    ns = np.where(wide, half_ns(place, reached, case), place.kernel_ns * scale)
    if case == "high":
        return Autocast(ns, casts, np.zeros(len(ns)))
    inside = place.kernel_ns / np.maximum(place.kernels.duration_ns, 1)  # the share of each kernel in the window
    ns = ns + np.where(wide, _casting_ns(place, reached, flow, casts), 0.0) * inside
    return Autocast(ns, casts, np.where(_in_graph(place), 0.0, casts * cast_cost_ns(place)[case]))


def _in_graph(place: Place) -> Mask:
    """One bool a kernel: is it of a graph, which is captured once, so that its casts cost the host nothing more?"""
    call = launches_of(place, "kernels").call
    graph = place.timeline.calls.name.matches(cuda_names.GRAPH_LAUNCH)
    of_graph = (call == UNKNOWN) | (graph[np.maximum(call, 0)] if graph.size else True)
    found: Mask = of_graph | place.kernels["is_graph"].astype(bool)
    return found


# --- which type flows from kernel to kernel --------------------------------------------------------------------------


@once_per_place
def _flow(place: Place) -> Ints:
    """For each kernel the type of the result that it comes behind; for a product, that the first of its row comes
    behind, since products one behind the other read the same (queries, keys and values).
    """
    order, count = stream_order(place), len(place.kernels)
    found = np.full(count, _WIDE)
    if not count:
        return found
    wide, kept, adds = (rows[order] for rows in (wide_products(place), _kept(place), _adds(place)))
    stream = place.kernels["stream"][order]
    begins = np.r_[True, stream[1:] != stream[:-1]]
    makes = np.where(wide, _HALF, _WIDE)
    says = wide | kept | adds | half_products(place)[order]
    # A stream begins in fp32: the last row that says anything is looked for behind its first one.
    at = np.arange(count)
    last = np.maximum.accumulate(np.where(says, at, -1))
    before = np.r_[-1, last[:-1]]
    before = np.where(before >= np.maximum.accumulate(np.where(begins, at, 0)), before, -1)
    state = np.where(before >= 0, makes[np.maximum(before, 0)], _WIDE)
    row_of_products = wide & np.r_[False, wide[:-1]] & ~begins
    first = np.maximum.accumulate(np.where(row_of_products, 0, at))
    found[order] = np.where(wide, state[first], state)
    return found


@once_per_place
def _activations(place: Place) -> Mask:
    """One bool a kernel: does it work on activations in fp32, and not on parameters, indices or masks?"""
    names = place.kernels.name
    other = names.matches(kernel_names.NOT_ON_ACTIVATIONS) | names.matches(kernel_names.ON_HALF)
    return place.kernel_rows(*_ON_ACTIVATIONS) & ~other & ~in_optimizer(place)


@once_per_place
def _kept(place: Place) -> Mask:
    """One bool a kernel: does autocast keep its op in fp32?"""
    op = launches_of(place, "kernels").enclosing("ops")
    by_op = place.timeline.ops.name.matches(torch_names.KEPT_IN_FP32)
    named = by_op[np.maximum(op, 0)] & (op != UNKNOWN) if by_op.size else np.zeros(len(op), dtype=bool)
    kept: Mask = _activations(place) & (place.kernels.name.matches(kernel_names.KEPT_IN_FP32) | named)
    return kept


@once_per_place
def _adds(place: Place) -> Mask:
    return _activations(place) & place.kernels.name.matches(kernel_names.ADDS) & ~_kept(place)


def _beside(place: Place, flow: Ints, case: str) -> Floats:
    """How many times as long each kernel that is no product takes under autocast."""
    behind = _activations(place) & (flow == _HALF)
    kept, adds = behind & _kept(place), behind & _adds(place)
    ns = np.maximum(place.kernels.duration_ns, 1).astype(float)
    moving = np.maximum(ns - kernel_floor_ns(place), 0) / ns  # the part of its time that goes with its bytes
    scale = np.ones(len(ns))
    if case == "high":
        scale[behind & ~kept] -= (1 - _ON_HALF) * moving[behind & ~kept]
        return scale
    if case == "likely":
        plain = behind & ~kept & ~adds
        scale[plain] -= (1 - _ON_HALF) * moving[plain]
        scale[adds] -= (1 - _SUM) * moving[adds]
    scale[kept] += 1 - moving[kept] + _CAST_OF_KEPT * moving[kept]
    return scale


# --- casts in front of products --------------------------------------------------------------------------------------


@once_per_place
def _casts(place: Place) -> Floats:
    """How many casts a product brings: of its weight, and of the other factor where that is in fp32.

    Products of activations (batched ones, attention) have no weight, and read what products before them wrote. In
    training each is cast back in the backward pass: one for each of the two products there, where these are known
    apart, else two for three products.
    """
    behind_wide = (_flow(place) == _WIDE).astype(float)
    launched, ops = launches_of(place, "kernels"), place.timeline.ops.name
    without_weight = place.kernel_rows("attention") | launched.inside_of("ops", ops.matches(torch_names.BATCHED_MATMUL))
    forward = np.where(without_weight, behind_wide, 1 + behind_wide)
    backward = launched.inside_of("ops", ops.matches(torch_names.AUTOGRAD_NODE))
    if backward.any():
        # Behind which type the gradient comes says nothing of the product's own inputs: one cast each, on the whole.
        return np.where(backward, np.where(without_weight, 0.0, 1.0), forward)
    trains = place.kernel_rows("optimizer").any() or in_optimizer(place).any()
    casts: Floats = forward * (2 / 3 if trains else 1.0)
    return casts


def _casting_ns(place: Place, reached: ReachedRates, flow: Ints, casts: Floats) -> Floats:
    """Ns of the device that these casts take, by the bytes of a product's inputs; its weight is about half of them."""
    bandwidth = memory_rate(place, reached.memory)
    if not bandwidth:
        return np.zeros(len(place.kernels))
    inputs = np.zeros(len(place.kernels))
    inputs[wide_rows(place)] = np.nan_to_num(sizes(place, reached).inputs)
    both = np.where(flow == _WIDE, 1.0, 1 / 2)
    return np.where(casts > 0, casts * kernel_floor_ns(place) + both * inputs * _CAST_BYTES / bandwidth * 1e9, 0.0)


#: Times a launch, where little is saved and likely.
_LAUNCHES = {"low": 5.5, "likely": 4.0}
#: The most in any of these recordings.
_LONGEST_NS = 32_000


@once_per_place
def cast_cost_ns(place: Place) -> Mapping[str, float]:
    """Ns of the host that a cast costs, an op that C++ calls with one kernel, where little is saved (`low`) and likely.

    As many times its launch as in public recordings, but no more than in any of them, nor than the host takes here from
    one launch to the next: `aten::to` around one kernel took 3.1 to 5.5 times as long as the call that launches it, 4.0
    in the middle (80 % of, and the median of, nine recordings by torch.profiler on V100, A100, H100 and MI300X; 13 to
    32 µs). What a launch waits for room in a full queue is no part of it; nor are pauses, in which the host does
    something else. 0 where no launch was recorded.
    """
    calls, call = place.timeline.calls, launches_of(place, "kernels").call
    call = distinct(call[call != UNKNOWN])
    took = calls.duration_ns[call]
    usual = took[took <= LONGEST_LAUNCH_NS]
    if not usual.size:
        return dict.fromkeys(_LAUNCHES, 0.0)
    launch_ns = float(np.median(usual))
    start, end, thread = (calls[column][call] for column in ("start_ns", "end_ns", "thread"))
    if len(occurring(thread)) > 1 or len(occurring(calls["process"])) > 1:  # else they are in their order
        order = np.lexsort((start, thread, calls["process"][call]))
        start, end, thread = start[order], end[order], thread[order]
    between = (start[1:] - end[:-1])[thread[1:] == thread[:-1]] + launch_ns
    between = between[(between > 0) & (between <= LONGEST_LAUNCH_NS)]
    most = min(float(np.median(between)) if between.size else np.inf, _LONGEST_NS)
    return {case: min(times * launch_ns, most) for case, times in _LAUNCHES.items()}
