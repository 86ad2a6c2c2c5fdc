"""So many small copies between host and device that each one's latency counts, and not its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_work import of_copies
from perfdoctor.detectors.savings import half_certain
from perfdoctor.metrics.copies.transfers import (
    by_op,
    bytes_of,
    copies_of,
    exposed_ns,
    host_memory,
    owner,
    rates,
    sizes,
)
from perfdoctor.metrics.units import us
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure


def _small(place: Place, max_bytes: float) -> Mask:
    size, asked = sizes(place), ~host_memory(place, "managed")
    rows: Mask = copies_of(place, "h2d", "d2h") & asked & (size > 0) & (size <= max_bytes)
    return rows


def _saved_ns(place: Place, rows: Mask) -> int:
    """What they take longer than one copy of all their bytes."""
    if not rows.any():
        return 0
    best = float(rates(place.copies)[rows].max())
    return max(exposed_ns(place, rows) - round(bytes_of(place, rows) / best * 1e9), 0)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """One copy of all their bytes, at the best rate that any of them reached, is what would be left.

    Pages of managed memory that move are no copies that the program could make one of.
    """

    def small(place: Place) -> Mask:
        return _small(place, at["max_bytes"])

    found = of_copies(run, small, at["min_share_of_step"])
    if found is None or found.per_step < at["min_copies_per_step"]:
        return
    worst, rows = found.worst, found.worst_rows
    saved = run.mean(lambda place: _saved_ns(place, small(place)))
    yield Finding(
        rule="many-small-copies",
        saving_ns_per_step=half_certain(saved, found.ns),
        confidence="medium",
        values={
            "copies_per_step": found.per_step,
            "mean_bytes": float(np.mean(sizes(worst)[rows])),
            "mean_us": us(float(np.mean(worst.copies.duration_ns[rows]))),
            **found.time_values("exposed"),
        },
        evidence=(
            Measure("small copies a step", found.per_step, "count"),
            Measure("their time with nothing beside them", found.ns, "ns"),
            by_op(worst, rows, f"Small copies of rank {worst.rank}, a step"),
        ),
        symptom_of=(owner(worst, rows),),
    )
