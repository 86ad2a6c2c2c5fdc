"""Which pieces of device work does a finding choose? Also in steps that are played, but lie outside the window.

The host is ahead of the device, and steps that are played begin when their work on the main stream does: up to a step
behind the window that detectors look at. What runs there is chosen as its counterparts in the window are, the same
piece of each step: the so many-th of its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Frame, Ints, Mask
from perfdoctor.replay.graph.ranks import device_rows, recorded


def work_rows(place: Place, signals: Sequence[str], work: Mapping[tuple[int, int], Mask]) -> Mask:
    """One bool a row of DeviceWork. `work` chooses among the place's frames of these signals, one behind the other."""
    rows = np.zeros(len(place.work), dtype=bool)
    chosen, at = chosen_of(place, signals, work), 0
    for signal in signals:
        frame = recorded(place, signal)
        own = np.flatnonzero((frame.end_ns > place.window.starts[0]) & (frame.start_ns < place.window.ends[-1]))
        rows[device_rows(place)[signal][_everywhere(place, frame, own, chosen[at : at + own.size])]] = True
        at += own.size
    return rows


def chosen_of(place: Place, signals: Sequence[str], work: Mapping[tuple[int, int], Mask]) -> Mask:
    """One bool a row of the place's frames: all of them where nothing is chosen anywhere."""
    size = sum(len(own(place, signal)) for signal in signals)
    chosen: Mask = np.full(size, not work)
    of_place = work.get((place.rank, place.device or 0), chosen)
    chosen[: of_place.size] = of_place
    return chosen


def own(place: Place, signal: str) -> Frame:
    return {"kernels": place.kernels, "copies": place.copies, "collectives": place.collectives}[signal]


def _everywhere(place: Place, frame: Frame, inside: Ints, chosen: Mask) -> Mask:
    """One bool a row of the frame: as chosen inside the window, and outside as most of its counterparts inside are."""
    rows = np.zeros(len(frame), dtype=bool)
    rows[inside] = chosen
    if chosen.all() or not chosen.any():
        return np.full(len(frame), bool(chosen.size and chosen.all()))
    step = np.searchsorted(place.steps.even_bounds, frame.start_ns, side="right")
    name, number = part_of_step(frame, step).T
    _, part = np.unique(name * len(frame) + number, return_inverse=True)
    known = np.zeros(len(frame), dtype=bool)
    known[inside] = True
    whole = known & (step > 0) & (step < place.steps.even_bounds.size)
    of_all, of_chosen = (np.bincount(part[each], minlength=part.max() + 1) for each in (whole, whole & rows))
    alike: Mask = 2 * of_chosen[part] > of_all[part]
    return np.where(known, rows, alike)


def part_of_step(frame: Frame, step: Ints) -> Ints:
    """For each row its name, and how many of that name came before it in its step."""
    name = frame.name.codes.astype(np.int64)
    order = np.lexsort((frame.start_ns, name, step))
    begins = np.ones(order.size, dtype=bool)
    begins[1:] = (np.diff(name[order]) != 0) | (np.diff(step[order]) != 0)
    first = np.maximum.accumulate(np.where(begins, np.arange(order.size), 0))
    before = np.empty(order.size, np.int64)
    before[order] = np.arange(order.size) - first
    return np.stack((name, before), axis=1)
