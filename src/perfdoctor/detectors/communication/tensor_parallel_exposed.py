"""All-reduces of tensor parallelism stand between the matrix kernels of each layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_work import of_collectives
from perfdoctor.detectors.saved_shares import half_certain
from perfdoctor.metrics.communication.collectives import exposed_rows_ns, transfer_share
from perfdoctor.metrics.units import ms
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import torch as torch_names


def _of_layers(place: Place, at: Mapping[str, float]) -> Mask:
    """One bool a collective: is it an all-reduce in a small group, of the usual size? Gradients are of many sizes."""
    frame = place.collectives
    size, group = frame["bytes"], frame["group_size"]
    in_small_group = (group > 1) & (group <= at["max_group_size"])
    rows: Mask = frame.text("kind").equals("all_reduce") & (size != UNKNOWN) & in_small_group
    rows = rows & ~launches_of(place, "collectives").while_open(torch_names.GRADIENT_HOOK, "ops", "ranges")
    if not rows.any():
        return rows
    sizes, counts = np.unique(size[rows], return_counts=True)
    chosen: Mask = rows & (size == sizes[counts.argmax()])
    return chosen


def _between_matmuls(place: Place, rows: Mask) -> float:
    """The share of these all-reduces between which and the one before a matrix kernel starts."""
    matmul = np.sort(place.kernels.start_ns[place.kernel_rows(*MATMUL_FAMILIES)])
    start = place.collectives.start_ns[rows]
    return float(np.mean(np.diff(np.searchsorted(matmul, start)) > 0)) if start.size > 1 else 0.0


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find exposed all-reduces that hardly any compute runs beside, one after each pair of matrix products."""
    transfer = transfer_share(run, "all_reduce")
    found = of_collectives(run, lambda place: _of_layers(place, at), transfer, at["min_share_of_step"])
    if found is None or found.per_step < at["min_messages_per_step"]:
        return
    worst, rows = found.worst, found.worst_rows
    took_ns = int(worst.window.overlap_ns(worst.collectives.start_ns, worst.collectives.end_ns)[rows].sum())
    hidden = 1 - exposed_rows_ns(worst, rows) / took_ns
    if hidden > at["max_hidden_share"] or _between_matmuls(worst, rows) < at["min_between_share"]:
        return
    matmul_ns = run.mean(lambda place: int(place.kernel_ns[place.kernel_rows(*MATMUL_FAMILIES)].sum()))
    likely = min(int(found.ns * at["won_share_likely"]), matmul_ns)
    size = int(worst.collectives["bytes"][rows][0])
    group = int(worst.collectives["group_size"][rows][0])
    yield found.finding(
        rule="tensor-parallel-exposed",
        saving=half_certain(likely, min(found.ns, matmul_ns)),
        bound_ns=matmul_ns,
        confidence="high" if len(run.places) > 1 else "medium",
        values={
            "messages_per_step": found.per_step,
            "ranks": group,
            **found.time_values("exposed"),
            "matmul_ms": ms(matmul_ns),
        },
        evidence=(
            Measure("exposed all-reduces between layers", found.ns, "ns"),
            Measure("size of each", size, "bytes"),
            Measure("matrix kernels that could hide them", matmul_ns, "ns"),
        ),
    )
