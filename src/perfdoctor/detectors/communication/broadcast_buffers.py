"""DistributedDataParallel sends the model's buffers from rank 0 before each forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_work import of_collectives
from perfdoctor.detectors.savings import Shares
from perfdoctor.metrics.communication.collectives import launched_in, transfer_share
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Frame, Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import torch as torch_names


def _of_buffers(place: Place, frame: Frame) -> Mask:
    """One bool a row: a broadcast that DDP's forward launched. Parameters are sent once, before training."""
    inside = launched_in(place, frame, torch_names.DDP_FORWARD, "ranges", "ops")
    rows: Mask = frame.text("kind").equals("broadcast") & inside
    return rows


def _transfer_share(run: Run) -> float:
    """How much of their time is transfer: whoever came last, the root or another, is in one for the shortest time."""
    frames = [(place, place.recorded_collectives) for place in run.places]  # at a window's edge some miss one
    took = [frame.duration_ns[_of_buffers(place, frame)] for place, frame in frames]
    if len(took) < 2 or len({each.size for each in took}) > 1 or not took[0].size:
        return transfer_share(run)
    return float(np.stack(took).min(axis=0).sum() / max(np.stack(took).sum(axis=1).mean(), 1))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Exposed time of these broadcasts: the forward pass waits for them."""
    found = of_collectives(
        run, lambda place: _of_buffers(place, place.collectives), _transfer_share(run), at["min_share_of_step"]
    )
    if found is None:
        return
    yield found.finding(
        rule="broadcast-buffers",
        saving=Shares(at["won_share_low"], 1.0).of(found.ns),
        confidence="high" if len(run.places) > 1 else "medium",
        values={
            "broadcasts_per_step": found.per_step,
            **found.time.exposed_values(),
        },
        evidence=(Measure("exposed broadcasts of buffers", found.ns, "ns"),),
    )
