"""Which ranks are in one machine, and on which rail? By the numbers of their devices, as launchers give them out.

A launcher numbers the ranks of a machine one after the other and gives each the device of its place in the machine: the
first rank of a machine is the rank less its device. GPUs with the same number in all machines are on one rail: their
network adapters are on the same switch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfdoctor.model.place import JobPlace
from perfdoctor.model.timeline import Ints


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
