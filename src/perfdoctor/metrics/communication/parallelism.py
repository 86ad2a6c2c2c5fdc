"""What is each group of ranks for: do its ranks divide the batch, parameters, layers, a layer, a sequence or experts?

The name or description of a group says so where a framework gave one: `mesh_dp_shard`, `TENSOR_MODEL_PARALLEL_GROUP`.
Else what most of its time carries does: messages between neighbours are a pipeline's, all-to-alls those of experts or
embeddings, sums inside layers tensor parallelism's; who scatters and gathers shards parameters, and who only sums
gradients divides the batch, or replicates shards that another group holds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.communication.collectives import proven_messages
from perfdoctor.metrics.communication.hideable import purposes
from perfdoctor.metrics.program import facts
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline
from perfdoctor.vocabulary.names import nccl as nccl_names

#: A group by its name in the recording; of old recordings, which name none, by the kind of collective.
GroupKey = tuple[str, str]


class GroupUse(Struct, frozen=True):
    """`kind`: a key of `nccl.PARALLELISM` or "exchange"; "" where neither name nor messages show it."""

    kind: str
    by_name: bool = False


@once_per_run
def group_uses(run: Run) -> Mapping[GroupKey, GroupUse]:
    """What each group is for, by `key_of` its collectives."""
    sent: dict[GroupKey, dict[str, float]] = {}
    for place in run.places:
        frame, what = place.collectives, purposes(run, place)
        kinds = np.array(list(frame.text("kind")), dtype=object)
        carried = np.select(
            [proven_messages(place), what.in_layers, what.gradients & (kinds == "all_reduce")],
            ["messages", "in layers", "gradients"], kinds,
        )  # fmt: skip
        for group, kind, carries, ns in zip(
            frame.text("group"), kinds.tolist(), carried.tolist(), frame.duration_ns.tolist(), strict=True
        ):
            own = sent.setdefault(key_of(group, kind), {})
            own[carries] = own.get(carries, 0) + ns
    shards = {key for key, own in sent.items() if "reduce_scatter" in own}
    return {key: _use(run, key, own, is_beside_shards=bool(shards - {key})) for key, own in sent.items()}


def key_of(group: str, kind: str) -> GroupKey:
    return group, "" if group else kind


def _use(run: Run, key: GroupKey, sent: Mapping[str, float], *, is_beside_shards: bool) -> GroupUse:
    named = next((kind for kind, pattern in nccl_names.PARALLELISM.items() if pattern.search(key[0])), "")
    if named:
        return GroupUse(named.partition(" ")[0], by_name=True)
    most = max(sent, key=lambda carries: sent[carries])
    if most == "messages":
        return GroupUse("pipeline")
    if most == "all_to_all":
        return GroupUse(_exchanged(run.timeline))
    if most == "in layers":
        return GroupUse("tensor")
    if "reduce_scatter" in sent or ("all_gather" in sent and facts(run) & {"fsdp", "deepspeed"}):
        return GroupUse("sharded")
    if "gradients" in sent and "gradients" in facts(run):
        return GroupUse("hybrid" if is_beside_shards and key[0] else "data")
    return GroupUse("")


def _exchanged(timeline: Timeline) -> str:
    """Whose all-to-alls are they, by the names around them: embeddings', experts' or a sequence's? Else an exchange."""
    rows = [timeline[signal].name for signal in ("ops", "ranges", "functions", "kernels")]
    return next(
        (kind for kind, pattern in nccl_names.EXCHANGED.items() if any(names.matches(pattern).any() for names in rows)),
        "exchange",
    )
