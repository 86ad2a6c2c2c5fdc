"""Which NIC does each GPU send through, and is another one nearer to it?

NCCL's log numbers its devices ("NET/IB : Using [0]mlx5_0:1/IB …", "via NET/IB/0"), and `nvidia-smi topo -m` shows how
far each of them is from each GPU. A virtual device (several ports as one) has a number that the log gives no name for:
it is left out.
"""

from __future__ import annotations

from msgspec import Struct

from perfdoctor.metrics.communication.nccl import NcclLog
from perfdoctor.metrics.communication.topology import Pairs, pairs
from perfdoctor.model.timeline import Timeline
from perfdoctor.vocabulary.names import nccl as nccl_names

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

    The topology is of one machine: the others of the job are taken to be built alike.
    """
    links, log = pairs(timeline), NcclLog.of(timeline)
    found, ways, of_host = set(), log.ways, {}
    for host in set(ways["host"].tolist()):  # NCCL's number → the NIC's name on this machine
        rows = log.rows("nic").of(host=host)
        of_host[host] = dict(zip(map(int, rows.floats("amount").tolist()), rows.text("value"), strict=True))
    for way, host, gpu in zip(ways.name, ways["host"].tolist(), ways["device"].tolist(), strict=True):
        number, names = nccl_names.ADAPTER.match(way), of_host[host]
        nic = names.get(int(number.group(1)), "") if number else ""
        link = _link(links, gpu, nic)
        if nic and link in _FAR:
            nearest = min(((_link(links, gpu, other), other) for other in names.values()), key=_distance)
            if nearest[0] in NEAR:
                found.add((gpu, nic, link, nearest[1], nearest[0]))
    return [Detour(*each) for each in sorted(found)]


def _link(links: Pairs, gpu: int, nic: str) -> str:
    return links.get((f"GPU{gpu}", nic), "")


def _distance(each: tuple[str, str]) -> tuple[int, str]:
    order = (*NEAR, *_FAR)
    return (order.index(each[0]) if each[0] in order else len(order), each[1])
