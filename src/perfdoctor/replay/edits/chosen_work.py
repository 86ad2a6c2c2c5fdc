"""Which pieces of device work does a finding choose? Also in simulated steps outside the window.

The host is ahead of the device, and simulated steps begin when their work on the main stream does: up to a step after
the window that detectors analyse. Work there is chosen if its counterparts in the window are: the work with the same
name and the same number among those of that name in its step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perfdoctor.metrics.grouping import counterparts
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Floats, Ints, Mask


def work_rows(place: Place, signals: Sequence[str], work: Mapping[tuple[int, int], Mask]) -> Mask:
    """One bool a row of DeviceWork. `work` chooses among the place's frames of these signals, one behind the other."""
    found = np.zeros(len(place.work), dtype=bool)
    chosen, at = chosen_of(place, signals, work), 0
    for signal in signals:
        rows, inside = place.work.rows[signal], place.in_window(signal)
        own = chosen[at : at + np.count_nonzero(inside)]
        at += own.size
        if own.all() or not own.any():
            found[rows] = bool(own.size and own.all())
        else:
            found[rows[inside]] = own
            found[rows[~inside]] = _as_counterparts(place, rows, inside, own)
    return found


def chosen_of(place: Place, signals: Sequence[str], work: Mapping[tuple[int, int], Mask]) -> Mask:
    """One bool a row of the place's frames of these signals; all are chosen where `work` chooses nothing anywhere."""
    size = sum(np.count_nonzero(place.in_window(signal)) for signal in signals)
    chosen: Mask = np.full(size, not work)
    of_place = work.get(place.rank_and_device, chosen)
    chosen[: of_place.size] = of_place
    return chosen


def _as_counterparts(place: Place, rows: Ints, inside: Mask, chosen: Mask) -> Mask:
    """One bool a row outside the window: are most of its counterparts in the window's whole steps chosen?

    `rows`: those of one signal in DeviceWork, of which some are `inside`, and of these some `chosen`.
    """
    edges = place.steps.even_bounds
    step = np.searchsorted(edges, place.work.start_ns[rows[inside]], side="right")
    whole = (step > 0) & (step < edges.size)
    piece = same_piece(place)[rows]
    many = int(piece.max(initial=-1)) + 1
    of_all, of_chosen = (np.bincount(piece[inside][each], minlength=many) for each in (whole, whole & chosen))
    return (2 * of_chosen > of_all)[piece[~inside]]


def spread(place: Place, signal: str, values: Floats) -> Floats:
    """A number for each row of DeviceWork, from `values` of the place's frame of this signal; 0 for other signals.

    Outside the window it is the mean of its counterparts' in the window, 0 where there is none.
    """
    found = np.zeros(len(place.work))
    rows, inside = place.work.rows[signal], place.in_window(signal)
    found[rows[inside]] = values
    piece = same_piece(place)[rows]
    many = int(piece.max(initial=-1)) + 1
    count, total = (np.bincount(piece[inside], weights=each, minlength=many) for each in (None, values))
    found[rows[~inside]] = (total / np.maximum(count, 1))[piece[~inside]]
    return found


@once_per_place
def same_piece(place: Place) -> Ints:
    """For each row of DeviceWork a number that the same piece of every step has: the n-th of its name there."""
    pieces, so_far = np.full(len(place.work), UNKNOWN), 0
    for signal, rows in place.work.rows.items():
        piece, count = counterparts(place.recorded(signal), place.steps.even_bounds)
        pieces[rows] = so_far + piece
        so_far += count
    return pieces
