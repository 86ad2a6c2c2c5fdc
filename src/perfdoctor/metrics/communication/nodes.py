"""Which ranks are in one machine, on which rail, and which were not recorded?

A launcher numbers the ranks of a machine one after the other and gives each the device of its place in the machine: the
first rank of a machine is the rank less its device. GPUs with the same number in all machines are on one rail: their
network adapters are on the same switch. A collective that ends late may have been slow, or have waited for a rank of
which nothing was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfdoctor.metrics.grouping import combined
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Ints


def first_ranks(places: Sequence[JobPlace]) -> Ints | None:
    """For each place the first rank of its machine; None where the devices do not show the machines.

    They do not where processes see one device each, which all call 0, or where two ranks of a machine would share one.
    """
    if not places or any(place.device is None for place in places):
        return None
    rank = np.array([place.rank for place in places], np.int64)
    device = np.array([place.device for place in places], np.int64)
    if not device.any() or (rank < device).any() or np.unique(rank).size < rank.size:
        return None
    return rank - device


def where(members: Sequence[JobPlace]) -> str:
    """What these ranks share, in words: a machine, or a rail; "" where nothing is known that they share."""
    first = first_ranks(members)
    if first is None:
        return ""
    if np.unique(first).size == 1:
        return f"in the node of rank {int(first[0])}"
    devices = {place.device for place in members}
    return f"on rail {devices.pop()}" if len(devices) == 1 else ""


def spans(ranks: Sequence[int], most: int = 4) -> str:
    """Ranks as text: `0-7, 16-23`; of many stretches the first ones."""
    if not ranks:
        return ""
    ordered = np.unique(np.array(ranks, np.int64))
    pieces = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    shown = [str(piece[0]) if piece.size == 1 else f"{piece[0]}-{piece[-1]}" for piece in pieces[:most]]
    return ", ".join(shown) + (f" and {len(pieces) - most} more" if len(pieces) > most else "")


@once_per_run
def ranks_of_job(run: Run) -> int:
    """How many ranks the job had, as far as that was recorded: its size, or the largest group that communicates."""
    sizes = run.timeline.collectives["group_size"]
    return max(run.timeline.world_size, int(sizes.max(initial=0)), len(run.ranks))


def ranks_missing(run: Run) -> int:
    """The number of ranks of the job that were not recorded; 0 where none is known to be missing."""
    return ranks_of_job(run) - len(run.ranks)


@once_per_run
def largest_transfer_share(run: Run) -> float:
    """The most of the time in collectives that may be transfer (0-1), by the shortest of the same kind, group and size.

    That one waited least: none of its kin has to take longer. One of unknown size or group stands for itself: of two
    groups one may be of GPUs that are further apart.
    """
    frames = [place.collectives for place in run.places if len(place.collectives)]
    if not frames:
        return 1.0
    took = np.concatenate([frame.duration_ns for frame in frames]).astype(np.float64)
    size = np.concatenate([frame["bytes"] for frame in frames])
    # Frames of a run share the codes of their texts.
    kind, group = (np.concatenate([frame.text(name).codes for frame in frames]) for name in ("kind", "group_name"))
    alike, first = combined(kind, group, size)
    shortest = np.full(first.size, np.inf)
    np.minimum.at(shortest, alike, took)
    ranks = np.concatenate([frame["group_size"] for frame in frames])
    named = np.concatenate([~frame.text("group_name").equals("") for frame in frames])
    at_most = np.where((size != UNKNOWN) & (named | (ranks != UNKNOWN)), shortest[alike], took)
    return float(at_most.sum() / max(took.sum(), 1))
