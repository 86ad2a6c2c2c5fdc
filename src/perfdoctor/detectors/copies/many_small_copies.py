"""So many small copies between host and device that each one's latency counts, and not its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_work import of_copies
from perfdoctor.detectors.saved_shares import half_certain
from perfdoctor.metrics.copies.costs import pinned_rate
from perfdoctor.metrics.copies.transfers import by_op, bytes_of, copies_of, exposed_ns, host_memory, owner, rates, sizes
from perfdoctor.metrics.finding_rows import kernels_and_copies
from perfdoctor.metrics.units import ms, us
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure


def _saved_ns(run: Run, place: Place, rows: Mask, direction: str) -> float:
    """Ns of the window that copies of one direction take longer than one copy of a step's bytes.

    That goes at the rate of large pinned copies, or of the fastest small one if this is faster.
    """
    if not rows.any():
        return 0.0
    size = bytes_of(place, rows)
    best = float(rates(place.copies)[rows].max())
    merged = pinned_rate(run, place, direction, size / place.units).bytes_per_second
    return max(exposed_ns(place, rows) - size / max(best, merged) * 1e9, 0.0)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find small copies, of which one from pinned memory would be left in each direction."""

    def small(place: Place) -> Mask:
        # Pages of managed memory that move are no copies that the program could make one of.
        size, asked = sizes(place), ~host_memory(place, "managed")
        return copies_of(place, "h2d", "d2h") & asked & (size > 0) & (size <= at["max_bytes"])

    def saved_ns(place: Place) -> float:
        rows = small(place)
        return sum(_saved_ns(run, place, rows & copies_of(place, way), way) for way in ("h2d", "d2h"))

    found = of_copies(run, small, at["min_share_of_step"])
    if found is None or found.per_step < at["min_copies_per_step"]:
        return
    worst, rows = found.worst, found.worst_rows
    won_ns = min(run.mean(saved_ns), found.ns)
    yield found.finding(
        rule="many-small-copies",
        saving=half_certain(won_ns, found.ns),
        confidence="medium",
        values={
            "copies_per_step": found.per_step,
            "mean_bytes": float(np.mean(sizes(worst)[rows])),
            "mean_us": us(float(np.mean(worst.copies.duration_ns[rows]))),
            **found.time_values("exposed"),
            "merged_ms": ms(found.ns - won_ns),
        },
        evidence=(
            Measure("small copies a step", found.per_step, "count"),
            Measure("their time with nothing beside them", found.ns, "ns"),
            by_op(worst, rows, f"Small copies of rank {worst.rank}, a step"),
        ),
        symptom_of=(owner(worst, rows),),
        acts_on=lambda place: kernels_and_copies(place, copies=small(place)),
    )
