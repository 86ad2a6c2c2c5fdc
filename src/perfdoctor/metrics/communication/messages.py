"""Which sends and receives of two ranks are the same message, and which ranks are one pipeline?

The recording names the ranks at the other ends of a kernel (`peers`), or torch.distributed opens a range around each
message: `nccl:send 0->1` on the sender, `nccl:recv 1<-0` on the receiver, with the numbers that the ranks have in their
group. Messages between two ranks arrive in the order in which they are sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from perfdoctor.model.cache import once_per_place
from perfdoctor.model.launches import recorded_launches
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.timeline import UNKNOWN, Ints
from perfdoctor.vocabulary.names import nccl as nccl_names

#: The kind of a message's rows.
MESSAGE = "send_recv"
#: A group, and the numbers in it of who sends and who receives.
_Ends = tuple[str, int, int]


def messages(places: Sequence[JobPlace]) -> Mapping[tuple[int, int], tuple[Ints, Ints]]:
    """By sender and receiver, as their numbers in `places`: the rows of `recorded_collectives` of each, in order.

    Only where all ranks of a group were recorded is it known which of them have which number in it.
    """
    members: dict[str, list[int]] = {}
    size: dict[str, int] = {}
    for number, place in enumerate(places):
        frame = place.recorded_collectives
        groups, sizes = frame.text("group_name"), frame["group_size"]
        for name in {groups.values[code] for code in np.unique(groups.codes).tolist()}:
            members.setdefault(name, []).append(number)
            size[name] = max(size.get(name, UNKNOWN), int(sizes[groups.equals(name)].max()))
    found: dict[tuple[int, int], dict[bool, list[Ints]]] = {}

    def put(sender: int, receiver: int, number: int, rows: Ints) -> None:
        if sender != receiver and number in (sender, receiver):
            found.setdefault((sender, receiver), {}).setdefault(sender == number, []).append(rows)

    # A process may have more devices, of which one sends.
    sending = [number for number, place in enumerate(places) if len(place.recorded_collectives)]
    of_rank = {places[number].rank: number for number in sending}
    for number, place in enumerate(places):
        for peer, (sent, received) in _with_peers(place).items():
            if peer in of_rank:
                put(number, of_rank[peer], number, sent)
                put(of_rank[peer], number, number, received)
        for (group, sender, receiver), rows in _own(place).items() if isinstance(place, Place) else ():
            there = members[group] if group else sending
            known = len(there) if size[group] == UNKNOWN else size[group]
            if len(there) == known and max(sender, receiver) < known:
                put(there[sender], there[receiver], number, rows)
    return {
        ends: (sent, received)
        for ends, sides in found.items()
        if len(sides) == len(ends)
        and (sent := np.sort(np.concatenate(sides[True]))).size
        and (received := np.sort(np.concatenate(sides[False]))).size
    }


@once_per_place
def _with_peers(place: JobPlace) -> dict[int, tuple[Ints, Ints]]:
    """By the rank at the other end: the place's rows that send to it, and those that receive from it."""
    peers = place.recorded_collectives.text("peers")
    found: dict[int, tuple[list[int], list[int]]] = {}
    for row in np.flatnonzero(~peers.equals("")).tolist():
        for side, ranks in enumerate(nccl_names.peers_of(peers[row])):
            for rank in ranks:
                found.setdefault(rank, ([], []))[side].append(row)
    return {rank: (np.array(sent, np.int64), np.array(received, np.int64)) for rank, (sent, received) in found.items()}


@once_per_place
def _own(place: Place) -> dict[_Ends, Ints]:
    """The place's rows of messages whose ends are known, by these.

    What was launched before the recording began has no range: its ends are those of all others on its stream.
    """
    ranges, frame = place.timeline.ranges, place.recorded_collectives
    rows = np.flatnonzero(frame.text("kind").equals(MESSAGE) & frame.text("peers").equals(""))
    inside = recorded_launches(place, "collectives").outermost("ranges", ranges.name.matches(nccl_names.BETWEEN))[rows]
    groups, names = frame.text("group_name").take(rows), ranges.name.take(inside[inside != UNKNOWN])
    of_stream = list(zip(frame["stream"][rows].tolist(), groups, strict=True))
    ends: list[tuple[int, int] | None] = [None] * rows.size
    seen: dict[tuple[int, str], set[tuple[int, int]]] = {}
    for at, name in zip(np.flatnonzero(inside != UNKNOWN).tolist(), names, strict=True):
        ends[at] = _ends(name)
        seen.setdefault(of_stream[at], set()).add(_ends(name))
    found: dict[_Ends, list[int]] = {}
    for row, stream, own in zip(rows.tolist(), of_stream, ends, strict=True):
        alike = seen.get(stream, set())
        known = own or (next(iter(alike)) if len(alike) == 1 else None)
        if known is not None:
            found.setdefault((stream[1], *known), []).append(row)
    return {known: np.array(own, np.int64) for known, own in found.items()}


def _ends(name: str) -> tuple[int, int]:
    """The numbers of sender and receiver in a range of this name."""
    found = nccl_names.BETWEEN.match(name)
    first, arrow, second = found.groups() if found else ("", "", "")
    return (int(first), int(second)) if arrow == "->" else (int(second), int(first))


def pipelines(places: Sequence[JobPlace]) -> Ints:
    """For each place its stage: its number among the ranks that send each other messages; 0 where nobody does.

    Ranks of one pipeline are numbered from its first stage to its last one, as launchers and frameworks do. Ranks that
    send round a ring, one way only, have no first one: they share a sequence.
    """
    stage = np.zeros(len(places), np.int64)
    for own, pairs in joined(places):
        if not is_ring(pairs):
            stage[own] = np.arange(own.size)
    return stage


def joined(places: Sequence[JobPlace]) -> list[tuple[Ints, list[tuple[int, int]]]]:
    """The places that send each other messages, by rank, and their pairs of sender and receiver: one element a line."""
    of, pairs = np.arange(len(places)), list(messages(places))
    for sender, receiver in pairs:
        of[of == of[receiver]] = of[sender]
    order = np.argsort([place.rank for place in places], kind="stable")
    return [
        (order[of[order] == first], [pair for pair in pairs if of[pair[0]] == first])
        for first in sorted({int(of[sender]) for sender, _ in pairs})
    ]


def is_ring(pairs: Collection[tuple[int, int]]) -> bool:
    """Do these senders and receivers pass messages round one way, each to one other and from one other?

    Of two ranks nobody knows. A pipeline sends gradients back, or ends (where it only computes forward).
    """
    senders, receivers = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    one_each = len(set(senders)) == len(senders) == len(set(receivers)) and set(senders) == set(receivers)
    return len(pairs) > 2 and one_each
