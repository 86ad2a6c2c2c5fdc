"""Batches are copied to the device in the very stream of the kernels, so nothing runs beside the copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_copies
from perfdoctor.detectors.saved_shares import half_certain
from perfdoctor.metrics.copies.transfers import by_op, compute_stream, copies_of, host_memory
from perfdoctor.metrics.units import ms
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure


def _in_stream(place: Place) -> Mask:
    """One bool a copy: is it from pinned memory, in the compute stream? Of pageable ones no other stream helps."""
    own = place.copies["stream"] == compute_stream(place)
    rows: Mask = own & copies_of(place, "h2d") & host_memory(place, "pinned")
    return rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find these copies; on another stream the compute of the step before could hide them, as far as there is any."""
    found = of_copies(run, _in_stream, at["min_share_of_step"])
    if found is None:
        return
    worst, hideable_ns = found.worst, found.hideable_ns()
    yield found.finding(
        rule="copies-in-compute-stream",
        saving=half_certain(hideable_ns, found.ns),
        confidence="high",
        values={
            "copies_per_step": found.per_step,
            **found.time_values("exposed"),
            "hideable_ms": ms(hideable_ns),
            "stream": compute_stream(worst),
        },
        evidence=(
            Measure("copies in the kernels' stream with nothing beside them", found.ns, "ns"),
            Measure("compute that could hide them", hideable_ns, "ns"),
            by_op(worst, found.worst_rows, f"These copies of rank {worst.rank}, a step"),
        ),
    )
