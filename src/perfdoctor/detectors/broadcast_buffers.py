"""DistributedDataParallel sends the model's buffers from rank 0 before each forward pass."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.findings import Finding, Measure
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.collectives import exposed_rows_ns, launched_in, transfer_share
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.timeline.model import Mask

_DDP_FORWARD = re.compile(r"^DistributedDataParallel\.forward")


def _of_buffers(place: Place) -> Mask:
    """One bool a row: a broadcast that DDP's forward launched. Parameters are sent once, before training."""
    frame = place.collectives
    inside = launched_in(place, frame, _DDP_FORWARD, "ranges", "ops")
    rows: Mask = frame.text("kind").equals("broadcast") & inside
    return rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Exposed time of these broadcasts: the forward pass waits for them."""
    transfer = transfer_share(run)

    def exposed(place: Place) -> float:
        return exposed_rows_ns(place, _of_buffers(place)) * transfer

    if run.share(exposed) < at["min_share_of_step"]:
        return
    worst = run.worst(exposed)
    exposed_ns = run.mean(exposed)
    yield Finding(
        rule="broadcast-buffers",
        saving_ns_per_step=saving(exposed_ns, at["won_share_low"], 1.0),
        confidence="high" if len(run.places) > 1 else "medium",
        values={
            "broadcasts_per_step": np.count_nonzero(_of_buffers(worst)) / worst.units,
            "exposed_ms": ms(exposed_ns),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(exposed_ns / run.step_ns),
        },
        evidence=(Measure("exposed broadcasts of buffers", exposed_ns, "ns"),),
    )
