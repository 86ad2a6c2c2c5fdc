"""Managed memory moves between host and device while kernels need it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.copies.transfers import bytes_of, copies_of, exposed_ns, host_memory
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure


def _moved(place: Place) -> Mask:
    rows: Mask = host_memory(place, "managed") & ~copies_of(place, "d2d", "memset", "p2p")
    return rows


def _moving_ns(place: Place) -> int:
    return exposed_ns(place, _moved(place))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """What kernels lose while they wait for a page is inside their own time, and not seen here."""
    share = run.share(_moving_ns)
    if share < at["min_share_of_step"]:
        return
    moving, worst = run.mean(_moving_ns), run.worst(_moving_ns)
    rows = _moved(worst)
    yield Finding(
        rule="managed-memory",
        saving_ns_per_step=saving(moving, 0.0, at["avoidable_share_likely"]),
        confidence="medium",
        values={
            "copies_per_step": rows.sum() / worst.units,
            "megabytes": bytes_of(worst, rows) / worst.units / 1e6,
            "exposed_ms": ms(moving),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(share),
        },
        evidence=(
            Measure("copies of managed memory with nothing beside them", moving, "ns"),
            Measure("their bytes a step", bytes_of(worst, rows) / worst.units, "bytes"),
        ),
        work=work_of(run, _moved),
        affected_ns=moving,
    )
