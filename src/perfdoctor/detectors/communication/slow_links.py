"""Large messages between GPUs of one machine move far slower than the links between them do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from perfdoctor.detectors.saved_shares import Shares, half_certain
from perfdoctor.hardware.links import link_of, nvlink_bytes_per_second
from perfdoctor.metrics.communication.by_use import use_of
from perfdoctor.metrics.communication.collectives import Bandwidth, bandwidth_table, bandwidths, transfer_share
from perfdoctor.metrics.communication.link_baseline import baseline, planned_rings, reached_by_ring, slow_groups
from perfdoctor.metrics.communication.messages import MESSAGE
from perfdoctor.metrics.communication.nodes import spans
from perfdoctor.metrics.communication.topology import nvlinks, of_job, pairs
from perfdoctor.metrics.counters.links import nvlink_evidence
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.replay.job.late import faster_transfers_ns
from perfdoctor.vocabulary.kinds import ON_RINGS

_EXPECTED = {
    "": "what two linked GPUs have between them",
    "measured": "what the same links were measured to give",
    "planned": "what NCCL plans for, less what the steps of a ring take",
    "topology": "what joins these GPUs, less what the steps of a ring take",
    "groups": "the middle one of all groups that send such messages",
}
_GROUPS = "groups"
#: So many slow groups are shown.
_MOST_GROUPS = 8


class _Reference(Struct, frozen=True):
    """What a bandwidth is held against, in bytes/s: the expected, its least share, what is likely reached, the most.

    `groups`: how many other groups showed it.
    """

    link: str
    expected: float
    least_share: float
    likely: float
    most: float
    situation: str = ""
    groups: int = 0


def _reference(run: Run, each: Bandwidth, at: Mapping[str, float]) -> _Reference | None:
    """What the same links gave when they were measured; else what NCCL plans, the topology says, or any board has.

    None where none of these is known, or the machine has no NVLinks between these GPUs.
    """
    measured = baseline(
        run.timeline, each.kind, each.ranks, each.message_bytes, one_machine=each.one_node, members=each.members
    )
    if measured is not None:
        speed = measured.bus_bytes_per_second
        return _Reference(measured.source, speed, at["min_share_of_measured"], speed, speed, "measured")
    if planned := planned_rings(run.timeline, each.ranks):
        return _by_plan("NCCL", each, planned, at, "planned")
    links, (chosen, _) = pairs(run.timeline), of_job(run)
    if not each.one_node:
        return None
    if links and chosen:
        count, one = nvlinks(links, chosen, each.ranks), nvlink_bytes_per_second(each.gpu)
        return _by_plan(f"NV{count}", each, count * one, at, "topology") if count and one else None
    link = link_of(each.gpu)
    if link is None:
        return None
    # Each GPU has at least one pair's links to every other of the ring, and no more than all of its links.
    joined = min(link.peak_bytes_per_second, (each.ranks - 1) * link.pair_bytes_per_second)
    reached, pair = at["reached_share_of_link"] * joined, link.pair_bytes_per_second
    return _Reference(link.name, pair, at["min_share_of_link"], reached, link.peak_bytes_per_second)


def _by_plan(link: str, each: Bandwidth, most: float, at: Mapping[str, float], situation: str) -> _Reference:
    """What rings over links of `most` bytes/s reach with messages of this size. `link`: their name."""
    step_ns = at["ring_step_ns"] if each.one_node else at["network_step_ns"]
    reached = reached_by_ring(each.kind, each.ranks, each.message_bytes, most, step_ns)
    return _Reference(link, reached, at["min_share_of_plan"], reached, most, situation)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Compare the bus bandwidth of transfers with a reference: measured, planned, or what any board has."""
    measured = _held_against(run, at)
    if not measured:
        return
    worst, against = measured[0]  # the most exposed
    exposed_ns = int(worst.exposed_ns * transfer_share(run))
    if against.situation == _GROUPS:  # the others wait for these ranks elsewhere: what is theirs is all transfer
        exposed_ns = min(worst.exposed_ns, worst.transfer_ns)
    reached = worst.bus_bytes_per_second / against.expected
    # A message that is late delays the stages behind it: what that costs shows where all ranks are replayed.
    replayed_ns = None
    if worst.kind == MESSAGE:
        replayed_ns = faster_transfers_ns(run, worst.kind, worst.members, worst.bus_bytes_per_second / against.likely)
    if replayed_ns is not None:
        exposed_ns = int(replayed_ns)
    if reached >= against.least_share or exposed_ns < at["min_share_of_step"] * run.step_ns:
        return
    is_group = against.situation == _GROUPS
    yield Finding(
        rule="slow-links",
        saving_ns_per_step=Shares(
            1 - reached / against.least_share,
            1 - worst.bus_bytes_per_second / against.likely,
            1 - worst.bus_bytes_per_second / against.most,
        ).of(exposed_ns)
        if replayed_ns is None
        else half_certain(exposed_ns, exposed_ns),
        confidence="high" if against.situation in ("", "measured", _GROUPS) else "medium",
        values={
            "bus_gb_per_second": worst.bus_bytes_per_second / 1e9,
            "expected_gb_per_second": against.expected / 1e9,
            "reached_gb_per_second": against.likely / 1e9,
            "most_gb_per_second": against.most / 1e9,
            "link": against.link,
            "use": use_of(run, worst.group, worst.kind),
            **({"members": spans(worst.members), "groups": against.groups} if against.groups else {}),
            **({"shared": worst.shared} if against.groups and worst.shared else {}),
            "exposed_ms": ms(exposed_ns),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(exposed_ns / run.step_ns),
        },
        evidence=(
            Measure("bus bandwidth", worst.bus_bytes_per_second, "bytes_per_second"),
            Measure(_EXPECTED[against.situation], against.expected, "bytes_per_second"),
            *nvlink_evidence(run.worst(lambda place: place.communication.total_ns)),
            _groups(measured) if is_group else bandwidth_table([each for each, _ in measured]),
        ),
        situation=against.situation,
        formula="" if replayed_ns is None else "replayed",
        by_all_ranks=replayed_ns is not None,
        work=work_of(run, lambda place: _like(place, worst.kind, at["large_message_bytes"])),
        affected_ns=exposed_ns,
        stands_alone=is_group,  # what all others send takes as long as it does anyway
    )


def _held_against(run: Run, at: Mapping[str, float]) -> list[tuple[Bandwidth, _Reference]]:
    """Large messages with their reference, the most exposed first; if groups are slower than others, theirs alone."""
    least_bytes, least_share = at["large_message_bytes"], at["min_share_of_others"]
    held = []
    for group in slow_groups(run, least_bytes, at["message_bytes_of_pairs"], at["fewest_other_groups"], least_share):
        name, usual = f"{group.others} other groups", group.usual_bytes_per_second
        held.append((group.own, _Reference(name, usual, least_share, usual, usual, _GROUPS, group.others)))
    return held or [
        (each, reference)
        for each in bandwidths(run, least_bytes)
        if each.kind in ON_RINGS and (reference := _reference(run, each, at)) is not None
    ]


def _like(place: Place, kind: str, least_bytes: float) -> Mask:
    return place.collectives.text("kind").equals(kind) & (place.collectives["bytes"] >= least_bytes)


def _groups(measured: Sequence[tuple[Bandwidth, _Reference]]) -> Rows:
    """The groups that are slower than others of their kind."""
    return Rows(
        "Groups whose transfers are slow",
        ("kind", "ranks", "what they share", "message", "bus bandwidth", "others"),
        ("text", "text", "text", "bytes", "bytes_per_second", "bytes_per_second"),
        tuple(
            (of.kind, spans(of.members), of.shared, of.message_bytes, of.bus_bytes_per_second, against.expected)
            for of, against in measured[:_MOST_GROUPS]
        ),
    )
