"""Has one rank more to compute than the others, or does it take longer for as much? By the FLOP of its matmuls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfdoctor.metrics.work.op_work import op_work
from perfdoctor.model.place import Place


def more_flop(late: Place, others: Sequence[Place]) -> float:
    """By which share its FLOP a step exceed those of the middle one of the others; NaN where they are not known."""
    own, middle = _flop(late), float(np.median([_flop(place) for place in others]))
    return own / middle - 1 if middle else float("nan")


def explained_by_flop(late: Place, others: Sequence[Place]) -> float:
    """How much of its longer compute is there because it has more FLOP, from 0 to 1; 0 where they are not known."""
    middle = float(np.median([_compute_ns(place) for place in others]))
    longer = _compute_ns(late) / middle - 1 if middle else 0.0
    more = more_flop(late, others)
    return float(np.clip(more / longer, 0, 1)) if longer > 0 and not np.isnan(more) else 0.0


def _flop(place: Place) -> float:
    work = op_work(place)
    return float(work.flop[work.known].sum()) / place.units if work.known.any() else float("nan")


def _compute_ns(place: Place) -> float:
    return place.compute.total_ns / place.units
