"""Collectives that keep the compute streams waiting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.detectors.saved_shares import half_certain
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.communication.by_use import exposed_each_ns, mostly, table_of_uses
from perfdoctor.metrics.communication.collectives import (
    bandwidth_table,
    bandwidths,
    transfer_share,
    waited_for,
    won_by_all_ns,
)
from perfdoctor.metrics.communication.experts import permutation
from perfdoctor.metrics.communication.hideable import Taken, beyond_backward_ns, hideable, saved_ns, taken
from perfdoctor.metrics.communication.merged_collectives import (
    asking_ns,
    can_be_merged,
    evened_ns,
    messages_ns,
    most_bytes,
)
from perfdoctor.metrics.communication.nodes import largest_transfer_share, ranks_missing, ranks_of_job
from perfdoctor.metrics.communication.skew import Skew, skew
from perfdoctor.metrics.counters.links import nvlink_evidence
from perfdoctor.metrics.host.cpu_use import cores_allowed, idle_cores
from perfdoctor.metrics.program import facts
from perfdoctor.metrics.units import ms, percent, us
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Ints
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving

#: Frameworks that can leave out the sums of a batch, for which there is a fix.
ACCUMULATES = frozenset({"ddp", "fsdp"})


def _exposed_ns(place: JobPlace) -> int:
    return place.exposed_communication.total_ns


class _Exposed(Struct, frozen=True):
    """Exposed transfer in ns a step, its `share` of the step, and how much of it a fix takes away.

    `most_ns`: at most; `hidden_ns`: by hiding it behind compute, from which `beside` takes a share, or by merging
    messages; `halved_ns`: by sending 16 bits instead of 32; `less_often_ns`: by accumulating gradients.
    """

    share: float
    ns: int
    most_ns: int
    hidden_ns: int
    halved_ns: int
    less_often_ns: int
    beside: Taken

    @property
    def saving(self) -> Saving:
        return half_certain(max(int(self.beside.won(self.hidden_ns)), self.halved_ns, self.less_often_ns), self.most_ns)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find exposed communication that is transfer: what waits for a late rank is rank-skew's."""
    small = _Small.found(run, at["small_message_bytes"])
    found = _exposed(run, small, at)
    if found.share < at["min_share_of_step"]:
        return
    missing = ranks_missing(run)
    total = run.job.mean(lambda place: place.communication.total_ns)
    doubt = _doubt(run, found, missing=missing > 0)
    measured = bandwidths(run, at["large_message_bytes"])
    yield Finding(
        rule="exposed-communication",
        saving_ns_per_step=found.saving,
        confidence="medium" if doubt else "high",
        values={
            "exposed_ms": ms(found.ns),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(found.share),
            "mostly": mostly(run, run.job.places, exposed_each_ns),
            "ranks": len(run.ranks),
            "job_ranks": ranks_of_job(run),
            "hidden_percent": percent(1 - run.job.mean(_exposed_ns) / total) if total else 0.0,
            "hideable_ms": ms(found.hidden_ns),
            "taken_share": found.beside.likely,
            "halved_ms": ms(found.halved_ns),
            "less_often_ms": ms(found.less_often_ns),
            "most_ms": ms(found.most_ns),
            "small_per_step": small.per_step if small else 0.0,
            "small_us": us(small.each_ns) if small else 0.0,
            "small_kb": small.bytes_each / 1000 if small else 0.0,
        },
        sources={"taken_share": found.beside.source},
        evidence=(
            Measure("exposed communication", found.ns, "ns"),
            Measure("of it what independent compute, or merging, could save", found.hidden_ns, "ns"),
            *table_of_uses(run),
            *nvlink_evidence(run.worst(_exposed_ns)),
            *permutation(run),
            *([bandwidth_table(measured)] if measured else []),
        ),
        situation="one-rank" if len(run.ranks) == 1 else "some-ranks" if missing else "small" if small else "",
        affected_ns=found.most_ns if host_places(run) else 0,
        doubt=doubt,
    )


def _doubt(run: Run, found: _Exposed, *, missing: bool) -> str:
    """The first of its doubts that is so; "" for none."""
    if missing or len(run.job.places) == 1:
        return "missing"
    if host_places(run):
        return "cores"
    return "" if found.saving.likely >= MOST_OF_IT * found.saving.high else "half"


class _Small(Struct, frozen=True):
    """Messages without a GPU so small that their price is their own: how many a step, ns and bytes of the middle one.

    Ns are those of the transfer, once all ranks have come. Bytes are what it carries at most.
    """

    per_step: float
    each_ns: float
    bytes_each: float

    @classmethod
    def found(cls, run: Run, fewer_bytes: float) -> _Small | None:
        """None where other messages take most of the time, or nobody knows how much they carry."""
        matched = skew(run.job)
        place = next((each for each in host_places(run) if matched is not None and matched.has(each.rank)), None)
        if matched is None or place is None:
            return None
        rows = matched.rows_of(matched.number(place.rank))
        carried = most_bytes(place)[rows]
        is_small = (carried != UNKNOWN) & (carried <= fewer_bytes)
        took_ns = matched.shortest_ns[_numbers_of(matched, place.rank)]
        if took_ns[is_small].sum() < MOST_OF_IT * took_ns.sum() or not is_small.any():
            return None
        count = np.count_nonzero(is_small) / place.units
        return cls(count, float(np.median(took_ns[is_small])), float(np.median(carried[is_small])))


def _numbers_of(matched: Skew, rank: int) -> Ints:
    """The collectives of `matched` in which this rank takes part, in the order of `rows_of`."""
    numbers: Ints = matched.came.collective[matched.came.place == matched.number(rank)]
    return numbers


def _exposed(run: Run, small: _Small | None, at: Mapping[str, float]) -> _Exposed:
    share = run.job.share(_exposed_ns) * transfer_share(run)
    exposed_ns = round(run.job.mean(_exposed_ns) * transfer_share(run))
    waited_ns, beside = _waited_ns(run, exposed_ns), taken(run)
    hidden_ns = min(_hidden_ns(run, at), waited_ns)
    halved_ns = min(run.mean(lambda place: saved_ns(run, place)[0]), waited_ns)
    less_often_ns = _less_often_ns(run, waited_ns, at)
    in_layers = small is not None and "tensor-parallel" in facts(run)
    matched = skew(run) if host_places(run) and (in_layers or can_be_merged(run)) else None
    if matched is None:
        return _Exposed(share, exposed_ns, exposed_ns, int(hidden_ns), halved_ns, less_often_ns, beside)
    # Each message has its price. Merged into one a step, most of that goes, and so does waiting by turns.
    beside_ns = asking_ns(run, matched) + evened_ns(run, matched)
    most_ns = min(exposed_ns + beside_ns, run.mean(_exposed_ns))
    # Ranks that share the batch instead of layers send the gradients in one message, and compute as much.
    one_ns = waited_ns * (1 - 1 / max(small.per_step, 1)) if in_layers and small else 0.0
    merged_ns = one_ns or messages_ns(run, matched, at["quick_collectives"])
    hidden_ns = min(min(hidden_ns + merged_ns, waited_ns) + beside_ns, most_ns)
    return _Exposed(share, exposed_ns, most_ns, int(hidden_ns), halved_ns, less_often_ns, beside)


def _waited_ns(run: Run, exposed_ns: int) -> int:
    """Transfer that compute waited for, in ns a step: where it waits for the host, a collective costs nothing."""
    transfer = transfer_share(run)
    waited_ns = min(round(run.mean(lambda place: waited_for(place).total_ns) * transfer), exposed_ns)
    waited_ns = round(min(waited_ns, won_by_all_ns(run)))
    if ranks_missing(run):  # what waits for a rank that was not recorded is nothing that this rank could win
        waited_ns = round(waited_ns * min(largest_transfer_share(run) / transfer, 1.0))
    return waited_ns


def _less_often_ns(run: Run, waited_ns: int, at: Mapping[str, float]) -> int:
    """Ns a step that accumulating gradients is likely to save where no backward pass is long enough to hide them.

    0 where neither DDP nor FSDP names itself: other programs may have no batch to add.
    """
    timeline = run.timeline
    if not facts(run) & ACCUMULATES or not (len(timeline.ops) or len(timeline["functions"])):
        return 0
    sent_ns = run.mean(lambda place: beyond_backward_ns(run, place, at["backward_share"]))
    return int(min(sent_ns, waited_ns) * at["less_often_share"])


def _hidden_ns(run: Run, at: Mapping[str, float]) -> float:
    """Ns a step that compute is likely to hide; sums inside layers only where their fix splits them."""
    is_split = "tensor-parallel" in facts(run)

    def of_place(place: Place) -> float:
        own = hideable(run, place, at["backward_share"])
        split_ns = own.in_layers_ns if is_split and place.device is not None else 0.0
        return (own.gradients_ns + own.parameters_ns + split_ns + own.other_ns) / place.units

    hidden_ns = run.average([of_place(place) for place in run.places])
    if not host_places(run):
        return hidden_ns
    # Threads that send need a core. Where cores are idle, all work spread over them takes so much less time.
    idle = idle_cores(run) / cores_allowed(run)
    return hidden_ns * at["hidden_share_without_gpu"] if np.isnan(idle) else min(hidden_ns, idle * run.step_ns)
