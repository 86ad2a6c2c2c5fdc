"""Which kernels, copies or collectives is a finding about? For each place one bool a row, as a replay asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask


def work_of(run: Run, rows: Callable[[Place], Mask]) -> Mapping[tuple[int, int], Mask]:
    """By (rank, device), these rows of the place's frame."""
    return {place.rank_and_device: rows(place) for place in run.places}


def kernels_and_copies(place: Place, kernels: Mask | None = None, copies: Mask | None = None) -> Mask:
    """Rows of `place.kernels` and, behind them, of `place.copies`, as `fused` asks for them; none where not given."""
    both = (
        np.zeros(len(frame), dtype=bool) if rows is None else rows
        for rows, frame in ((kernels, place.kernels), (copies, place.copies))
    )
    together: Mask = np.concatenate(tuple(both))
    return together
