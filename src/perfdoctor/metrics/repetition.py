"""Do the steps launch the very same kernels in the same order, so that one capture could stand for all?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.breakdown import Place


@dataclass(frozen=True)
class Repetition:
    """`same` of `steps` steps launch the sequence seen most often, of `kernels` kernels. Grids count as far as told."""

    steps: int
    same: int
    kernels: int


def repetition(place: Place) -> Repetition:
    """Steps held against each other: name, grid and block of each kernel and collective, stream by stream."""
    signatures = Counter(_signature(place, index) for index in range(place.steps.first, place.steps.last))
    if not signatures:
        return Repetition(0, 0, 0)
    (_, kernels), same = signatures.most_common(1)[0]
    return Repetition(signatures.total(), same, kernels)


def _signature(place: Place, step: int) -> tuple[bytes, int]:
    """What one step ran, as bytes that are equal for equal steps, and of how many rows."""
    lower, upper = place.steps.bounds[step : step + 2]
    parts, count = [], 0
    for frame in (place.kernels, place.collectives):
        rows = np.flatnonzero((frame.start_ns >= lower) & (frame.start_ns < upper))
        rows = rows[np.argsort(frame["stream"][rows], kind="stable")]
        # Equal names may stand under two codes after a merge; one rank's rows come from one recording, so no matter.
        columns = [frame.name.codes[rows].astype(np.int64)]
        columns += [frame[c][rows] for c in ("stream", "blocks", "threads_per_block") if c in frame.columns]
        parts.append(np.concatenate(columns).tobytes())
        count += rows.size
    return b"|".join(parts), count
