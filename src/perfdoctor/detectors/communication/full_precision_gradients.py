"""Gradients travel in 32 bits while the model computes in 16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_work import of_collectives
from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.metrics.communication.collectives import is_full_precision, sizes_can_be_judged, transfer_share
from perfdoctor.metrics.communication.hideable import conversions_ns
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names.kernels import input_type

_REDUCING = ("all_reduce", "reduce_scatter", "reduce")


def _gradients(place: Place, at: Mapping[str, float]) -> Mask:
    """One bool a collective: is it a large sum of fp32? Activations, which are summed too, have the compute's type."""
    frame = place.collectives
    size = frame["bytes"]
    is_long = frame.duration_ns >= at["large_message_us"] * 1000
    large = np.where(size == UNKNOWN, is_long, size >= at["large_message_bytes"])
    return large & frame.text("kind").where(lambda kind: kind in _REDUCING) & is_full_precision(frame)


def _half_share(place: Place) -> float:
    """The share of 16-bit kernels in the time of matrix kernels whose type is known; 0 where none is known."""
    matmul, names = place.kernel_rows(*MATMUL_FAMILIES), place.kernels.name
    half_ns, *others_ns = (
        int(place.kernel_ns[matmul & names.has(input_type, kind)].sum()) for kind in ("half", "tf32", "fp32", "fp64")
    )
    return half_ns / max(half_ns + sum(others_ns), 1)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find exposed transfer of large fp32 sums where most matrix kernels read 16-bit numbers."""
    found = of_collectives(run, lambda place: _gradients(place, at), transfer_share(run), at["min_share_of_step"])
    if found is None:
        return
    worst, rows = found.worst, found.worst_rows
    half = _half_share(worst)
    if half < at["min_half_share"] or not sizes_can_be_judged(run, worst, rows):
        return
    size = worst.collectives["bytes"][rows]
    converting_ns = run.mean(lambda place: conversions_ns(run, place, _gradients(place, at)))
    of_half = Shares(at["won_share_low"], at["won_share_likely"], at["won_share_likely"]).of(found.ns)  # no fewer bytes
    # Gradients are converted and back, at most beside compute that leaves memory bandwidth free.
    low_ns, likely_ns = (max(ns - converting_ns, 0) for ns in (of_half.low, of_half.likely))
    yield found.finding(
        rule="full-precision-gradients",
        saving=Saving(low_ns, likely_ns, of_half.high),
        confidence="high" if len(run.places) > 1 else "medium",
        values={
            "messages_per_step": found.per_step,
            **found.time_values("exposed"),
            "half_percent": percent(half),
            "converting_ms": ms(converting_ns),
        },
        evidence=(
            Measure("exposed transfer of fp32 gradients", found.ns, "ns"),
            Measure("matrix kernels in 16 bits", half, "share"),
            *(
                [Measure("bytes of these gradients a step", float(size.sum()) / worst.units, "bytes")]
                if size.size and (size != UNKNOWN).all()
                else []
            ),
        ),
    )
