"""More than scalars goes back to the host in every step, and the device waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_copies
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.metrics.accounting.longest import longest_exposed
from perfdoctor.metrics.copies.transfers import (
    NEARLY_ALL,
    by_op,
    copies_of,
    host_memory,
    owner,
    pageable_to_host_share,
    sizes,
    steps_with,
)
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find copies of at least this size in nearly all steps: a checkpoint now and then is another matter."""

    def large(place: Place) -> Mask:
        # Pages of managed memory that move are none that the program asked for.
        return copies_of(place, "d2h") & ~host_memory(place, "managed") & (sizes(place) >= at["min_bytes"])

    found = of_copies(run, large, at["min_share_of_step"])
    if found is None:
        return
    worst, rows = found.worst, found.worst_rows
    if steps_with(worst, rows) < at["min_share_of_steps"] * worst.steps.used:
        return
    cause = owner(worst, rows)
    is_cause = cause == "pageable-copies" and pageable_to_host_share(worst) >= NEARLY_ALL
    yield found.finding(
        rule="results-copied-back",
        saving=shares(at, "avoidable_share").of(found.ns),
        confidence="medium",
        values={"megabytes": found.megabytes(), "copies_per_step": found.per_step, **found.time_values("exposed")},
        evidence=(
            Measure("copies to the host with nothing beside them", found.ns, "ns"),
            by_op(worst, rows, f"Large copies to the host of rank {worst.rank}, a step"),
            *longest_exposed(run, "copies", large),
        ),
        symptom_of=() if is_cause else (cause,),
    )
