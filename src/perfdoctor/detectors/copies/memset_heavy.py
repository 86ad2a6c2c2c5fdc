"""Memory is filled with zeros again and again, with nothing beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.copies.transfers import by_op, bytes_of, copies_of, exposed_ns
from perfdoctor.metrics.finding_rows import kernels_and_copies, work_of
from perfdoctor.metrics.kernels.zero_grad import filled_by_zero_grad
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure


def _memsets(place: Place) -> Mask:
    """Those of zero_grad have a rule of their own."""
    rows: Mask = copies_of(place, "memset") & ~filled_by_zero_grad(launches_of(place, "copies"))
    return rows


def _filling_ns(place: Place) -> int:
    return exposed_ns(place, _memsets(place))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Only what no kernel hides counts: a memset beside compute costs nothing."""
    share = run.share(_filling_ns)
    if share < at["min_share_of_step"]:
        return
    filling, worst = run.mean(_filling_ns), run.worst(_filling_ns)
    rows = _memsets(worst)
    yield Finding(
        rule="memset-heavy",
        saving_ns_per_step=saving(filling, 0.0, at["avoidable_share_likely"]),
        confidence="medium",
        values={
            "memsets_per_step": rows.sum() / worst.units,
            "megabytes": bytes_of(worst, rows) / worst.units / 1e6,
            "exposed_ms": ms(filling),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(share),
        },
        evidence=(
            Measure("memsets with nothing beside them", filling, "ns"),
            by_op(worst, rows, f"Memsets of rank {worst.rank}, a step"),
        ),
        work=work_of(run, lambda place: kernels_and_copies(place, copies=_memsets(place))),
        affected_ns=filling,
    )
