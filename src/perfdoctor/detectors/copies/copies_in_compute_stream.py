"""Batches are copied to the device in the very stream of the kernels, so nothing runs beside the copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.copies.transfers import by_op, compute_stream, copies_of, exposed_ns, host_memory
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving


def _in_stream(place: Place) -> Mask:
    """Copies from pinned memory only: from pageable memory another stream would not help."""
    own = place.copies["stream"] == compute_stream(place)
    rows: Mask = own & copies_of(place, "h2d") & host_memory(place, "pinned")
    return rows


def _stopped_ns(place: Place) -> int:
    return exposed_ns(place, _in_stream(place))


def _hideable_ns(place: Place) -> int:
    return min(_stopped_ns(place), (place.compute - place.copying).total_ns)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """On another stream the compute of the step before could hide them, as far as there is any."""
    share = run.share(_stopped_ns)
    if share < at["min_share_of_step"]:
        return
    stopped_ns, worst = run.mean(_stopped_ns), run.worst(_stopped_ns)
    hideable_ns = min(run.mean(_hideable_ns), stopped_ns)
    rows = _in_stream(worst)
    yield Finding(
        rule="copies-in-compute-stream",
        saving_ns_per_step=Saving(hideable_ns // 2, hideable_ns, stopped_ns),
        confidence="high",
        values={
            "copies_per_step": rows.sum() / worst.units,
            "exposed_ms": ms(stopped_ns),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(share),
            "stream": compute_stream(worst),
        },
        evidence=(
            Measure("copies in the kernels' stream with nothing beside them", stopped_ns, "ns"),
            Measure("compute that could hide them", hideable_ns, "ns"),
            by_op(worst, rows, f"These copies of rank {worst.rank}, a step"),
        ),
        work=work_of(run, _in_stream),
        affected_ns=stopped_ns,
    )
