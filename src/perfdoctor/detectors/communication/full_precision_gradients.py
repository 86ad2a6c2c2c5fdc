"""Gradients travel in 32 bits while the model computes in 16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.communication.collectives import (
    exposed_rows_ns,
    is_full_precision,
    sizes_can_be_judged,
    transfer_share,
)
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import MATMUL_FAMILIES, Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names.kernels import input_type

_REDUCING = ("all_reduce", "reduce_scatter", "reduce")


def _gradients(place: Place, at: Mapping[str, float]) -> Mask:
    """One bool a row: large sums of fp32. Activations, which are summed too, have the compute's type."""
    frame = place.collectives
    size = frame["bytes"]
    is_long = frame.duration_ns >= at["large_message_us"] * 1000
    large = np.where(size == UNKNOWN, is_long, size >= at["large_message_bytes"])
    rows: Mask = large & frame.text("kind").where(lambda kind: kind in _REDUCING) & is_full_precision(frame)
    return rows


def _half_share(place: Place) -> float:
    """How much of the time in matrix kernels whose type is known goes into 16-bit ones; 0 where none is known."""
    matmul = place.kernel_rows(*MATMUL_FAMILIES)
    names = place.kernels.name
    kinds = {
        kind: int(place.kernel_ns[matmul & names.has(input_type, kind)].sum())
        for kind in ("half", "tf32", "fp32", "fp64")
    }
    return kinds["half"] / max(sum(kinds.values()), 1)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Exposed transfer of large fp32 sums where most matrix kernels read 16-bit numbers."""
    transfer = transfer_share(run)

    def exposed(place: Place) -> float:
        return exposed_rows_ns(place, _gradients(place, at)) * transfer

    worst = run.worst(exposed)
    half = _half_share(worst)
    if run.share(exposed) < at["min_share_of_step"] or half < at["min_half_share"]:
        return
    rows = _gradients(worst, at)
    if not sizes_can_be_judged(run, worst, rows):
        return
    exposed_ns = run.mean(exposed)
    size = worst.collectives["bytes"][rows]
    yield Finding(
        rule="full-precision-gradients",
        saving_ns_per_step=saving(exposed_ns, at["won_share_low"], at["won_share_likely"], at["won_share_likely"]),
        confidence="high" if len(run.places) > 1 else "medium",
        values={
            "messages_per_step": np.count_nonzero(rows) / worst.units,
            "exposed_ms": ms(exposed_ns),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(exposed_ns / run.step_ns),
            "half_percent": percent(half),
        },
        evidence=(
            Measure("exposed transfer of fp32 gradients", exposed_ns, "ns"),
            Measure("matrix kernels in 16 bits", half, "share"),
            *(
                [Measure("bytes of these gradients a step", float(size.sum()) / worst.units, "bytes")]
                if size.size and (size != UNKNOWN).all()
                else []
            ),
        ),
        work=work_of(run, lambda place: _gradients(place, at)),
        counted_ns=exposed_ns,
    )
