"""Which GPUs and NICs of a machine are neighbours, and could a job have better ones?

NCCL moves data around rings. A ring is as fast as its slowest link, so GPUs are well chosen if a ring through all of
them crosses NVLinks alone, though some pairs of them may have none (a hybrid cube mesh has such rings through 2, 4 or
8 of its GPUs, and through others has not).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb

from msgspec import Struct

from perfdoctor.metrics.communication.collectives import in_one_node
from perfdoctor.metrics.communication.nccl import NcclLog
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.names import nccl as nccl_names

Pairs = Mapping[tuple[str, str], str]

_NVLINK = regex(r"NV\d+$")
_GPU = regex(r"GPU(\d+)$")
#: Choices of GPUs that are looked through; 8 of 16 are 12,870.
_MOST_CHOICES = 20_000


def pairs(timeline: Timeline) -> dict[tuple[str, str], str]:
    """What joins two devices: NV4, PIX, PXB, PHB, NODE, SYS."""
    frame = timeline["links"]
    return {
        (source, target): link
        for source, target, link in zip(frame.text("source"), frame.text("target"), frame.name, strict=True)
        if source != target
    }


def gpus(links: Pairs) -> list[int]:
    """The numbers of the GPUs in the table, ascending."""
    return sorted({int(number.group(1)) for pair in links for device in pair if (number := _GPU.match(device))})


def is_nvlink(links: Pairs, one: int, other: int) -> bool:
    return bool(_NVLINK.match(links.get((f"GPU{one}", f"GPU{other}"), "")))


def has_ring(links: Pairs, chosen: Sequence[int]) -> bool:
    """Does a ring through all of them cross NVLinks alone? Of two GPUs: is there a link?"""
    neighbours = {gpu: [other for other in chosen if other != gpu and is_nvlink(links, gpu, other)] for gpu in chosen}
    if any(len(own) < min(len(chosen) - 1, 2) for own in neighbours.values()):
        return False
    start = chosen[0]

    def goes_on(at: int, left: frozenset[int]) -> bool:
        if not left:
            return len(chosen) < 3 or start in neighbours[at]
        return any(goes_on(each, left - {each}) for each in neighbours[at] if each in left)

    return goes_on(start, frozenset(chosen) - {start})


def nvlinks(links: Pairs, chosen: Sequence[int], ranks: int) -> int:
    """How many NVLinks a ring through `ranks` of the chosen GPUs has at least between two; 0 where it needs others.

    Of a part of the GPUs it is known only where each has links to all.
    """
    joined = [links.get((f"GPU{one}", f"GPU{other}"), "") for one in chosen for other in chosen if one < other]
    counts = [int(link[2:]) for link in joined if _NVLINK.match(link)]
    if not counts or (len(counts) < len(joined) and (ranks < len(chosen) or not has_ring(links, chosen))):
        return 0
    return min(counts)


def better(links: Pairs, chosen: Sequence[int]) -> tuple[int, ...]:
    """Choose as many GPUs with a ring of NVLinks where the chosen ones have none, with as many of these as possible.

    () where the chosen ones have a ring, or no others do.
    """
    every = gpus(links)
    if len(chosen) < 2 or comb(len(every), len(chosen)) > _MOST_CHOICES or has_ring(links, chosen):
        return ()
    with_ring = (each for each in combinations(every, len(chosen)) if has_ring(links, each))
    return max(with_ring, key=lambda each: len(set(each) & set(chosen)), default=())


def of_job(run: Run) -> tuple[list[int], bool]:
    """Which GPUs of the machine the job uses, and whether that is certain; [] where it is not known.

    NCCL's log has the driver's own numbers. A rank's device is the same number unless a launcher hid others from it.
    """
    facts = run.timeline["nccl_facts"]
    devices = facts.take(facts.name.equals("device"))
    devices = devices.take(devices.floats("amount") >= 0)
    if len(devices) and len(set(devices["host"].tolist())) == 1:
        return sorted({int(number) for number in devices.floats("amount")}), True
    own = {place.device for place in run.places if place.device is not None}
    places = [place for place in run.places if place.device is not None]
    return (sorted(own) if len(places) > 1 and in_one_node(places) else []), False


#: From near to far (legend of `nvidia-smi topo -m`). Up to PXB data stay off the processor, and GPUDirect is used.
NEAR = ("PIX", "PXB")
_FAR = ("PHB", "NODE", "SYS")


class Detour(Struct, frozen=True):
    """A GPU that sends through a NIC behind the processor, and the one beside it that it could take."""

    gpu: int
    nic: str
    link: str
    nearer: str
    nearer_link: str


def detours(timeline: Timeline) -> list[Detour]:
    """The detours, one a GPU and NIC; none where log or topology lacks them.

    NCCL's log numbers its devices ("NET/IB : Using [0]mlx5_0:1/IB …", "via NET/IB/0"), and `nvidia-smi topo -m` shows
    how far each of them is from each GPU by the driver's number. A virtual device (several ports as one) has a number
    that the log gives no name for: it is left out. So is what another GPU sends (PXN), and a process whose GPU's number
    the log lacks. The topology is of one machine: the others of the job are taken to be built alike.
    """
    links, log = pairs(timeline), NcclLog.of(timeline)
    nics, gpus_of, ways, found = _nics(log), _gpus(log), log.ways, set()
    of_host = dict[int, set[str]]()
    for (host, _), names in nics.items():
        of_host.setdefault(host, set()).update(names.values())
    columns = (ways[name].tolist() for name in ("host", "process", "device", "member"))
    for way, host, process, device, member in zip(ways.name, *columns, strict=True):
        number, gpu = nccl_names.ADAPTER.match(way), gpus_of.get((host, process, device))
        if not number or gpu is None or int(number[2] or member) != member:
            continue
        nic = nics.get((host, process), {}).get(int(number[1]), "")
        link = _link(links, gpu, nic)
        if nic and link in _FAR:
            nearest = min(((_link(links, gpu, other), other) for other in of_host[host]), key=_distance)
            if nearest[0] in NEAR:
                found.add((gpu, nic, link, nearest[1], nearest[0]))
    return [Detour(*each) for each in sorted(found)]


def _nics(log: NcclLog) -> dict[tuple[int, int], dict[int, str]]:
    """By host and process: NCCL's number → the NIC's name. Each process numbers those that it may use."""
    rows, found = log.rows("nic"), dict[tuple[int, int], dict[int, str]]()
    columns = rows["host"].tolist(), rows["process"].tolist(), rows.floats("amount").tolist(), rows.text("value")
    for host, process, number, name in zip(*columns, strict=True):
        found.setdefault((host, process), {})[int(number)] = name
    return found


def _gpus(log: NcclLog) -> dict[tuple[int, int, int], int]:
    """By host, process and CUDA's number of a GPU: the driver's, where the log has it."""
    rows = log.rows("device")
    rows = rows.take(rows.floats("amount") >= 0)
    keys = zip(*(rows[name].tolist() for name in ("host", "process", "device")), strict=True)
    return dict(zip(keys, map(int, rows.floats("amount").tolist()), strict=True))


def _link(links: Pairs, gpu: int, nic: str) -> str:
    return links.get((f"GPU{gpu}", nic), "")


def _distance(each: tuple[str, str]) -> tuple[int, str]:
    order = (*NEAR, *_FAR)
    return (order.index(each[0]) if each[0] in order else len(order), each[1])
