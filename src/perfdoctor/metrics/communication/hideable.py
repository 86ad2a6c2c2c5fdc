"""How much of exposed communication could run beside compute that does not need its result, or be sent in 16 bits?

```
gradients             beside the backward pass: each is ready when its layer's backward pass is over; the last bucket
                      beside nothing
sharded parameters    beside the layer before, from the all-gather before on; the first of a step needs the update
sums inside layers    beside nothing: the next kernel needs them (tensor parallelism), unless both are split
others                beside compute that no collective runs beside
```

What runs beside compute takes SMs and memory bandwidth from it: see `taken`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from perfdoctor.hardware.links import link_of
from perfdoctor.metrics.communication.collectives import (
    bus_factor,
    exposed_rows_ns,
    is_full_precision,
    transfer_share,
    waited_for,
)
from perfdoctor.metrics.communication.skew import waits_for_stages
from perfdoctor.metrics.grouping import weighted_mean
from perfdoctor.metrics.program import facts
from perfdoctor.metrics.work.device_peaks import attained, peaks
from perfdoctor.model.host_rows import when_open
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Mask
from perfdoctor.vocabulary.names import nccl as nccl_names
from perfdoctor.vocabulary.names import torch as torch_names

#: Facts of training that gathers its parameters layer by layer.
SHARDED = frozenset({"fsdp", "deepspeed"})
#: And of programs whose layers wait for sums of all ranks.
SUMS_IN_LAYERS = frozenset({"tensor-parallel", "inference"})
#: And what divides layers, or the sequence that goes through them.
_OF_LAYERS = ("tensor", "sequence")
#: What DistributedDataParallel puts into one message by default: bucket_cap_mb=25 (torch.nn.parallel).
DEFAULT_BUCKET_BYTES = 25 << 20
#: One message can be cut in two at least, and so can what a layer waits for.
PIECES = 2


class Purposes(Struct, frozen=True):
    """What each collective of a place carries: one bool a row of `place.collectives`; none of them: something else."""

    gradients: Mask
    parameters: Mask
    in_layers: Mask


class Hideable(Struct, frozen=True):
    """Exposed transfer of a window that compute could hide, in ns, by what it carries.

    Gradients and parameters are limited by compute that is independent of them, the rest by compute that no collective
    runs beside. `in_layers_ns` if what a layer waits for was split: else nothing of it.
    """

    gradients_ns: float
    parameters_ns: float
    in_layers_ns: float
    other_ns: float


def purposes(run: Run, place: Place) -> Purposes:
    """What each collective carries, by its kind and by what the recording names."""
    known, kind = facts(run), place.collectives.text("kind")
    sums, gathers = kind.equals("all_reduce"), kind.equals("all_gather")
    in_layers = np.zeros(len(place.collectives), dtype=bool)
    if known & SUMS_IN_LAYERS:
        of_hook = launches_of(place, "collectives").while_open(torch_names.GRADIENT_HOOK, "ops", "ranges")
        sharded = bool(known & SHARDED)
        in_layers = (sums & ~of_hook) | ((gathers | kind.equals("reduce_scatter")) & (not sharded))
    # Groups that are named after what they divide: what a layer or a sequence sends, the next kernel needs.
    named = place.collectives.text("group_name").where(lambda group: nccl_names.parallelism(group) in _OF_LAYERS)
    in_layers |= named & (sums | gathers | kind.equals("reduce_scatter"))
    gradients = (sums | kind.equals("reduce_scatter")) & ~in_layers
    return Purposes(gradients, gathers & ~in_layers, in_layers)


def hideable(run: Run, place: Place, backward_share: float) -> Hideable:
    """Exposed transfer of the window that compute could hide.

    `backward_share`: the backward pass's share of compute where it was not recorded (0-1).
    """
    rows, waited, transfer = purposes(run, place), waited_for(place), transfer_share(run)
    free = place.compute - place.communication
    gradients = _running(place, rows.gradients) & waited
    parameters = (_running(place, rows.parameters) & waited) - gradients
    in_layers = (_running(place, rows.in_layers) & waited) - gradients - parameters
    others = _running(place, ~(rows.gradients | rows.parameters | rows.in_layers)) & waited
    others = others - waits_for_stages(run.job, place)
    return Hideable(
        bucketed_ns(place, rows.gradients, gradients.total_ns * transfer, transfer, backward_share),
        # Without a GPU torch waits for each all-gather before it goes on.
        0.0 if place.device is None else transfer * _behind_layer_before(place, rows.parameters, parameters, free),
        min(in_layers.total_ns, _before(place, rows.in_layers, in_layers, free)) * transfer * (1 - 1 / PIECES),
        min((others - gradients - parameters).total_ns * transfer, free.total_ns),
    )


def left_ns(whole_ns: float, last_ns: float, beside_ns: float) -> float:
    """What is left of the transfer of gradients behind a backward pass of `beside_ns` if they are sent in buckets.

    Of k equal buckets the first is ready after a k-th of the backward pass B, the last at its end, and each of them is
    on its way for a k-th of the transfer T. They end max(T / k, T - (1 - 1 / k) B) after the backward pass: the last
    bucket, or what the links cannot keep up with (Li et al., PyTorch Distributed, VLDB 2020, section 3.2).
    """
    return max(last_ns, whole_ns - (1 - last_ns / whole_ns) * beside_ns)


def bucketed_ns(place: Place, rows: Mask, exposed_ns: float, transfer: float, backward_share: float) -> float:
    """What of `exposed_ns` of these gradients the backward pass hides if they are sent in buckets, in ns of the window.

    `transfer`: the share of their time that is transfer.
    """
    whole_ns = _running(place, rows).total_ns * transfer
    if not whole_ns:
        return 0.0
    left = left_ns(whole_ns, last_bucket_ns(place, rows, whole_ns), backward_ns(place, backward_share, besides=rows))
    return max(min(exposed_ns, whole_ns) - left, 0.0)


def beyond_backward_ns(run: Run, place: Place, backward_share: float) -> float:
    """Exposed transfer of gradients that take longer than the backward pass, in ns of the window; 0 where they do not.

    Then the links are the limit, and only fewer or smaller messages help.
    """
    rows, transfer = purposes(run, place).gradients, transfer_share(run)
    running = _running(place, rows)
    is_limit = running.total_ns * transfer > backward_ns(place, backward_share, besides=rows)
    return (running & waited_for(place)).total_ns * transfer if is_limit else 0.0


def last_bucket_ns(place: Place, rows: Mask, whole_ns: float) -> float:
    """How long the last bucket of each step is on its way, in ns of the window.

    It is a message as now, at most half of all, or one of DDP's default size where that takes less: at the rate
    recorded, else at that of the GPU's links.
    """
    frame = place.collectives
    messages = max(np.count_nonzero(rows) / place.units, PIECES)
    size, ranks = frame["bytes"][rows], int(frame["group_size"][rows].max(initial=UNKNOWN))
    if (size != UNKNOWN).all() and size.sum() > 0:
        default_ns = whole_ns * DEFAULT_BUCKET_BYTES * place.units / float(size.sum())
    else:
        factor = bus_factor("all_reduce", ranks) if ranks > 1 else 1.0
        # All links to other GPUs of the board, one way; else the link to the host; 0 where neither is known.
        link, known = link_of(place.info.name), peaks(place)
        host_link = known.host_link_bytes_per_second if known else 0.0
        bytes_per_second = link.peak_bytes_per_second if link is not None else host_link
        default_ns = place.units * factor * DEFAULT_BUCKET_BYTES / (bytes_per_second or np.nan) * 1e9
    return float(np.fmin(whole_ns / messages, default_ns))


def _running(place: Place, rows: Mask) -> Intervals:
    return Intervals.of(place.collectives.start_ns[rows], place.collectives.end_ns[rows]) & place.window


def _behind_layer_before(place: Place, rows: Mask, exposed: Intervals, free: Intervals) -> float:
    """Exposed ns of these all-gathers that fit beside compute between the one before and themselves, but for one a
    step.
    """
    count = int(np.count_nonzero(rows))
    return _before(place, rows, exposed, free) * float(count - place.units) / count if count > place.units else 0.0


def _before(place: Place, rows: Mask, exposed: Intervals, free: Intervals) -> float:
    """Exposed ns of these collectives that are no longer than the compute since the one before, summed."""
    start, end = place.collectives.start_ns[rows], place.collectives.end_ns[rows]
    if start.size < 2:
        return 0.0
    before = free.overlap_ns(start[:-1], start[1:])
    hidden = np.minimum(exposed.overlap_ns(start[1:], end[1:]), before)
    return min(float(hidden.mean()) * start.size, float(exposed.total_ns))


def backward_ns(place: Place, unknown_share: float, *, besides: Mask | None = None) -> float:
    """Compute of the window's backward passes that no collective runs beside, but for the rows `besides`, in ns.

    Where it was not recorded what belongs to them, it is `unknown_share` of all such compute.
    """
    others = place.communication if besides is None else _running(place, ~besides)
    free = place.compute - others
    passes = when_open(place.timeline, place.rank, torch_names.AUTOGRAD_NODE, "ops")
    if place.device is None:
        backward = free & passes
    else:
        inside = launches_of(place, "kernels").within(passes)
        backward = free & Intervals.of(place.kernels.start_ns[inside], place.kernels.end_ns[inside])
    return backward.total_ns if backward else free.total_ns * unknown_share


#: The share of compute's time that is lost beside communication where the recording does not show it.
#: In trainings on A100, H100, MI210 and MI250 compute takes 18.9 % longer beside communication on the mean (Lee et al.,
#: Characterizing Compute-Communication Overlap in GPU-Accelerated Distributed Deep Learning, 2025, arXiv 2507.03114).
_USUAL = 1 - 1 / 1.189


class Taken(Struct, frozen=True):
    """`likely` is the share of the time with communication beside compute in which compute gets nothing done.

    At the least nothing, where compute leaves SMs free. `source`: the recording, or a table of published trainings.
    """

    likely: float
    source: Literal["recording", "table"] = "recording"

    def won(self, hidden_ns: float) -> float:
        """The ns that are likely won by hiding `hidden_ns` of communication."""
        return hidden_ns * (1 - self.likely)


def taken(run: Run) -> Taken:
    """The share of a GPU that collectives take from compute beside them, a mean over all places; 0 without a GPU.

    NCCL and RCCL run one block of threads for each channel, and a block keeps its SM for as long as the collective
    lasts (NCCL_MIN_CTAS, NCCL_MAX_CTAS in NCCL's documentation). Compute beside it has the other SMs: of the time
    beside, blocks ÷ SMs is lost. Memory and power are shared as well.
    """
    shares = [_sm_share(place) for place in run.places if place.device is not None]
    if not shares:
        return Taken(0.0)
    known = [share for share in shares if not np.isnan(share)]
    return Taken(float(np.mean([*known, *[_USUAL] * (len(shares) - len(known))])), "recording" if known else "table")


def _sm_share(place: Place) -> float:
    """Blocks of collectives over SMs, weighted by their time; NaN where the recording lacks one of them."""
    frame, sms = place.collectives, place.info.sm_count
    if not sms:
        return float("nan")
    known = frame["blocks"] > 0
    return weighted_mean(np.minimum(frame["blocks"][known] / sms, 1.0), np.maximum(frame.duration_ns[known], 1))


# --- sent in 16 bits ---


#: Half of the bytes take half of the time.
_HALF = 0.5
#: Memory traffic of converting, dividing and converting back, for each byte of a 32-bit gradient: 4 + 2, 2 + 2 and
#: 2 + 4 bytes for 4 (torch.distributed.algorithms.ddp_comm_hooks.default_hooks, bf16_compress_hook).
_TRAFFIC = 4.0
#: They pack gradients into messages of another type anyway.
_PACKS_ANYWAY = frozenset({"fsdp", "deepspeed", "megatron"})


def saved_ns(run: Run, place: Place) -> tuple[float, float]:
    """How much transfer that compute waits for 16-bit gradients and parameters save, in ns of the window: likely and
    at most.

    In 16 bits instead of 32 it takes half as long. Likely is that of what is known to have 32 bits, less the
    conversions; at most, what is of unknown type has, too.
    """
    rows, transfer = purposes(run, place), transfer_share(run)
    carried, wide = rows.gradients | rows.parameters, is_full_precision(place.collectives)
    likely_ns = _HALF * transfer * exposed_rows_ns(place, carried & wide)
    most_ns = _HALF * transfer * exposed_rows_ns(place, carried & ~_is_narrow(place))
    return max(likely_ns - conversions_ns(run, place, rows.gradients & wide), 0.0), max(most_ns, likely_ns)


def conversions_ns(run: Run, place: Place, gradients: Mask) -> float:
    """Device time in ns to convert the elements of these rows and back; 0 where sizes or memory are unknown."""
    memory = attained(place)
    if facts(run) & _PACKS_ANYWAY or place.device is None or memory is None or not memory.memory_bytes_per_second:
        return 0.0
    size = float(np.maximum(place.collectives["bytes"][gradients], 0).sum())
    return _TRAFFIC * size / memory.memory_bytes_per_second * 1e9


def _is_narrow(place: Place) -> Mask:
    """One bool a row: is it known to have 16 bits or fewer? By the recorded type, else by the kernel's name."""
    types, by_name = place.collectives.text("data_type"), place.collectives.name.mapped(nccl_names.data_type)
    narrow: Mask = types.matches(nccl_names.HALF_PRECISION)
    return narrow | (types.equals("") & by_name.matches(nccl_names.HALF_PRECISION))
