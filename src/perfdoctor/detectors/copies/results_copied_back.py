"""More than scalars goes back to the host in every step, and the device waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.accounting.longest import longest_exposed
from perfdoctor.metrics.copies.transfers import (
    by_op,
    bytes_of,
    copies_of,
    exposed_ns,
    host_memory,
    owner,
    sizes,
    steps_with,
)
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Copies of at least this size, in nearly all steps: a checkpoint now and then is another matter.

    Pages of managed memory that move are none that the program asked for.
    """

    def large(place: Place) -> Mask:
        rows: Mask = copies_of(place, "d2h") & ~host_memory(place, "managed") & (sizes(place) >= at["min_bytes"])
        return rows

    def back_ns(place: Place) -> int:
        return exposed_ns(place, large(place))

    share = run.share(back_ns)
    if share < at["min_share_of_step"]:
        return
    worst = run.worst(back_ns)
    rows = large(worst)
    if steps_with(worst, rows) < at["min_share_of_steps"] * worst.steps.used:
        return
    back = run.mean(back_ns)
    yield Finding(
        rule="results-copied-back",
        saving_ns_per_step=saving(back, at["avoidable_share_low"], at["avoidable_share_likely"]),
        confidence="medium",
        values={
            "megabytes": bytes_of(worst, rows) / worst.units / 1e6,
            "copies_per_step": rows.sum() / worst.units,
            "exposed_ms": ms(back),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(share),
        },
        evidence=(
            Measure("copies to the host with nothing beside them", back, "ns"),
            by_op(worst, rows, f"Large copies to the host of rank {worst.rank}, a step"),
            *longest_exposed(run, "copies", large),
        ),
        symptom_of=(owner(worst, rows),),
    )
