"""Tensors are copied from one place of the device's memory to another, with nothing beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.copies.transfers import by_op, bytes_of, copies_of, exposed_ns
from perfdoctor.metrics.finding_rows import kernels_and_copies, work_of
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def _copied_ns(place: Place) -> int:
    return exposed_ns(place, copies_of(place, "d2d"))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Only memcpy: a copy that a kernel makes (`contiguous` of a transposed tensor) is not told from arithmetic."""
    share = run.share(_copied_ns)
    if share < at["min_share_of_step"]:
        return
    copied, worst = run.mean(_copied_ns), run.worst(_copied_ns)
    rows = copies_of(worst, "d2d")
    yield Finding(
        rule="on-device-copies",
        saving_ns_per_step=saving(copied, 0.0, at["avoidable_share_likely"]),
        confidence="medium",
        values={
            "copies_per_step": rows.sum() / worst.units,
            "megabytes": bytes_of(worst, rows) / worst.units / 1e6,
            "exposed_ms": ms(copied),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(share),
        },
        evidence=(
            Measure("copies within the device with nothing beside them", copied, "ns"),
            by_op(worst, rows, f"Copies within the device of rank {worst.rank}, a step"),
        ),
        work=work_of(run, lambda place: kernels_and_copies(place, copies=copies_of(place, "d2d"))),
        affected_ns=copied,
    )
