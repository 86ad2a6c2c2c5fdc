"""Managed memory moves between host and device while kernels need it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_copies
from perfdoctor.detectors.savings import Shares
from perfdoctor.metrics.copies.transfers import bytes_of, copies_of, host_memory
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure


def _moved(place: Place) -> Mask:
    rows: Mask = host_memory(place, "managed") & ~copies_of(place, "d2d", "memset", "p2p")
    return rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """What kernels lose while they wait for a page is inside their own time, and not seen here."""
    found = of_copies(run, _moved, at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="managed-memory",
        saving=Shares(0.0, at["avoidable_share_likely"]).of(found.ns),
        confidence="medium",
        values=found.copy_values(),
        evidence=(
            Measure("copies of managed memory with nothing beside them", found.ns, "ns"),
            Measure("their bytes a step", bytes_of(found.worst, found.worst_rows) / found.worst.units, "bytes"),
        ),
    )
