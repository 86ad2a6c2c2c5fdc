"""Managed memory moves between host and device while kernels need it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_copies
from perfdoctor.metrics.copies.transfers import copies_of, host_memory
from perfdoctor.metrics.units import ms
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving


def _moved(place: Place) -> Mask:
    return host_memory(place, "managed") & ~copies_of(place, "d2d", "memset", "p2p")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find copies of managed memory; what kernels lose while they wait for a page is in their own time, and unknown.

    Data that is kept in device memory does not move at all; where it does not fit, prefetched pages move beside
    compute, as far as there is any.
    """
    found = of_copies(run, _moved, at["min_share_of_step"])
    if found is None:
        return
    hideable_ns = found.hideable_ns()
    yield found.finding(
        rule="managed-memory",
        saving=Saving(0, hideable_ns, found.ns),
        confidence="medium",
        values={**found.copy_values(), "hideable_ms": ms(hideable_ns)},
        evidence=(
            Measure("copies of managed memory with nothing beside them", found.ns, "ns"),
            Measure("compute that could hide them", hideable_ns, "ns"),
            Measure("their bytes a step", found.bytes_per_step(), "bytes"),
        ),
    )
