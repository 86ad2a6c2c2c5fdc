"""Which GPUs of a machine are neighbours, and could a job have better ones?

NCCL moves data around rings. A ring is as fast as its slowest link, so GPUs are well chosen if a ring through all of
them crosses NVLinks alone, though some pairs of them may have none (a hybrid cube mesh has such rings through 2, 4 or
8 of its GPUs, and through others has not).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb

from perfdoctor.metrics.communication.collectives import in_one_node
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline
from perfdoctor.patterns import regex

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
    """As many GPUs with a ring of NVLinks where the chosen ones have none, keeping as many of these as possible.

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
