"""DistributedDataParallel sends the model's buffers from rank 0 before each forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.communication.collectives import exposed_rows_ns, transfer_share
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.launches import recorded_launches
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import torch as torch_names


def _recorded(place: Place) -> Mask:
    """One bool a recorded collective: a broadcast launched by DDP's forward. Parameters are sent once, at the start."""
    inside = recorded_launches(place, "collectives").while_open(torch_names.DDP_FORWARD, "ranges", "ops")
    rows: Mask = place.recorded_collectives.text("kind").equals("broadcast") & inside
    return rows


def _of_buffers(place: Place) -> Mask:
    """The same of those in the window."""
    rows: Mask = _recorded(place)[place.in_window("collectives")]
    return rows


def _transfer_share(run: Run) -> float:
    """How much of their time is transfer: whoever came last, the root or another, is in one for the shortest time."""
    # At a window's edge some miss one.
    took = [place.recorded_collectives.duration_ns[_recorded(place)] for place in run.places]
    if len(took) < 2 or len({each.size for each in took}) > 1 or not took[0].size:
        return transfer_share(run)
    return float(np.stack(took).min(axis=0).sum() / max(np.stack(took).sum(axis=1).mean(), 1))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Exposed time of these broadcasts: the forward pass waits for them."""
    transfer = _transfer_share(run)

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
        work=work_of(run, _of_buffers),
        affected_ns=exposed_ns,
    )
