"""What is each group of ranks for: do its ranks divide the batch, parameters, layers, a layer, a sequence or experts?

The name or description of a group says so where a framework gave one: `mesh_dp_shard`, `TENSOR_MODEL_PARALLEL_GROUP`.
Else what most of its time carries does: messages between neighbours are a pipeline's, and a sequence's where they go
round one way; all-to-alls are those of experts or embeddings, sums inside layers tensor parallelism's; who scatters and
gathers shards parameters, and who only sums gradients divides the batch, or replicates shards that another group holds.
A few whole numbers say how much an exchange will bring.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.communication.collectives import proven_messages
from perfdoctor.metrics.communication.hideable import purposes
from perfdoctor.metrics.communication.messages import is_ring, joined
from perfdoctor.metrics.program import SMALL_BYTES, exchanged, facts
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask, Text, Timeline
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import nccl as nccl_names
from perfdoctor.vocabulary.names import torch as torch_names

#: A group by its name in the recording; of old recordings, which name none, by the kind of collective.
GroupKey = tuple[str, str]
#: Each layer sums at least once on the way forward and once on the way back: two layers are no accident.
_FEWEST_IN_LAYERS = 4
_MOST = 0.5
#: Facts of training that gathers its parameters.
_GATHERS = frozenset({"fsdp", "deepspeed"})


class GroupUse(Struct, frozen=True):
    """`kind`: a key of `kinds.PARALLELISM`; "" where neither name nor messages show it."""

    kind: str
    by_name: bool = False


@once_per_run
def group_uses(run: Run) -> Mapping[GroupKey, GroupUse]:
    """What each group is for, by `key_of` its collectives."""
    sent: dict[GroupKey, dict[str, float]] = {}
    for place in run.places:
        for key, carries, ns in _carried(run, place):
            own = sent.setdefault(key, {})
            own[carries] = own.get(carries, 0) + ns
    its = exchanged(run.timeline) if any("all_to_all" in own for own in sent.values()) else ""
    shards = {key for key, own in sent.items() if "reduce_scatter" in own}
    return {key: _use(run, key, own, shards, its) for key, own in sent.items()}


def key_of(group: str, kind: str) -> GroupKey:
    return group, "" if group else kind


def _carried(run: Run, place: Place) -> Iterator[tuple[GroupKey, str, float]]:
    """What the place's collectives carry, by group, with the time that it takes in ns."""
    frame, what = place.collectives, purposes(run, place)
    kind, group = frame.text("kind"), frame.text("group_name")
    numbers = frame.text("data_type").matches(nccl_names.WHOLE_NUMBERS) & (frame["bytes"] < SMALL_BYTES)
    carried: list[tuple[str, Mask]] = [
        ("messages", proven_messages(place)),
        ("in layers", what.in_layers | _sums_in_layers(place, what.gradients)),
        ("numbers", numbers & (frame["bytes"] != UNKNOWN)),
        ("gradients", what.gradients & kind.equals("all_reduce")),
    ]
    which = np.select([rows for _, rows in carried], list(range(len(carried))), len(carried))
    cells = (group.codes.astype(np.int64) * len(kind.values) + kind.codes) * (len(carried) + 1) + which
    found, first, of_cell = np.unique(cells, return_index=True, return_inverse=True)
    total = np.bincount(of_cell, weights=frame.duration_ns, minlength=found.size)
    for row, ns in zip(first.tolist(), total.tolist(), strict=True):
        its_kind = kind[row]
        yield key_of(group[row], its_kind), carried[which[row]][0] if which[row] < len(carried) else its_kind, ns


def _use(run: Run, key: GroupKey, sent: Mapping[str, float], shards: set[GroupKey], exchange: str) -> GroupUse:
    if named := nccl_names.parallelism(key[0]):
        return GroupUse(named, by_name=True)
    known, most = facts(run), max(sent, key=lambda carries: (carries != "numbers", sent[carries]))
    if most == "messages":
        is_of_sequence = _sends_round(run) or _has(run.timeline, nccl_names.RING_ATTENTION)
        return GroupUse("sequence" if is_of_sequence else "pipeline")
    if most in ("all_to_all", "numbers"):
        return GroupUse(exchange)
    if most == "in layers":
        return GroupUse("tensor")
    scatters = key in shards or ("all_gather" in sent and (bool(known & _GATHERS) or ("", "reduce_scatter") in shards))
    if scatters:
        return GroupUse("embeddings" if exchange == "embeddings" and not known & _GATHERS else "sharded")
    if "gradients" in sent and "gradients" in known:
        return GroupUse("hybrid" if shards - {key} and key[0] else "data")
    return GroupUse("")


def _sums_in_layers(place: Place, sums: Mask) -> Mask:
    """One bool a row of `place.collectives`: is it one of many sums of one size with a matrix product between each?

    Those are of activations. Gradients come in many sizes, from hooks of the backward pass, or where the optimizer runs
    (which may have products of its own): only where ops were recorded is it known which these are.
    """
    frame = place.collectives
    rows: Mask = sums & frame.text("kind").equals("all_reduce") & (frame["bytes"] != UNKNOWN)
    if not rows.any() or not len(place.timeline.ops):
        return np.zeros(len(frame), dtype=bool)
    launched = launches_of(place, "collectives")
    rows = rows & launched.known & ~launched.while_open(torch_names.GRADIENT_HOOK, "ops", "ranges")
    rows = rows & ~launched.while_open(torch_names.OPTIMIZER_RANGE, "ops", "ranges")
    found = np.zeros(len(frame), dtype=bool)
    product_ns = np.sort(place.kernels.start_ns[place.kernel_rows(*MATMUL_FAMILIES)])
    for own in _alike(frame.text("group_name"), frame["bytes"], rows):
        between = np.diff(np.searchsorted(product_ns, frame.start_ns[own])) > 0
        if own.size >= _FEWEST_IN_LAYERS * place.units and between.mean() > _MOST:
            found[own] = True
    return found


def _alike(group: Text, sizes: Ints, rows: Mask) -> Iterator[Ints]:
    """Yield those of these rows that are of one group and size, in order."""
    chosen = np.flatnonzero(rows)
    cells, of_cell = np.unique(np.stack((group.codes[chosen], sizes[chosen])), axis=1, return_inverse=True)
    for number in range(cells.shape[1]):
        yield chosen[of_cell.ravel() == number]


@once_per_run
def _sends_round(run: Run) -> bool:
    """Do all messages whose ends are known go round rings, one way?"""
    rings = [is_ring(pairs) for _, pairs in joined(run.job.places)]
    return bool(rings) and all(rings)


def _has(timeline: Timeline, pattern: re.Pattern[str]) -> bool:
    return any(timeline[signal].name.matches(pattern).any() for signal in ("ops", "ranges", "functions", "kernels"))
