"""Memory is filled with zeros again and again, with nothing beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_copies
from perfdoctor.detectors.savings import Shares
from perfdoctor.metrics.copies.transfers import by_op, copies_of
from perfdoctor.metrics.finding_rows import kernels_and_copies
from perfdoctor.metrics.kernels.zero_grad import filled_by_zero_grad
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure


def _memsets(place: Place) -> Mask:
    """Those of zero_grad have a rule of their own."""
    rows: Mask = copies_of(place, "memset") & ~filled_by_zero_grad(launches_of(place, "copies"))
    return rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Only what no kernel hides counts: a memset beside compute costs nothing."""
    found = of_copies(run, _memsets, at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="memset-heavy",
        saving=Shares(0.0, at["avoidable_share_likely"]).of(found.ns),
        confidence="medium",
        values={
            "memsets_per_step": found.per_step,
            "megabytes": found.megabytes(),
            **found.time_values("exposed"),
        },
        evidence=(
            Measure("memsets with nothing beside them", found.ns, "ns"),
            by_op(found.worst, found.worst_rows, f"Memsets of rank {found.worst.rank}, a step"),
        ),
        acts_on=lambda place: kernels_and_copies(place, copies=_memsets(place)),
    )
