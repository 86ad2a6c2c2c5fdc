"""DistributedDataParallel sends the model's buffers from rank 0 before each forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_work import of_collectives
from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.metrics.communication.collectives import transfer_share
from perfdoctor.model.launches import recorded_launches
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import torch as torch_names


def _recorded(place: Place) -> Mask:
    """One bool a recorded collective: a broadcast launched by DDP's forward. Parameters are sent once, at the start."""
    inside = recorded_launches(place, "collectives").while_open(torch_names.DDP_FORWARD, "ranges", "ops")
    return place.recorded_collectives.text("kind").equals("broadcast") & inside


def _transfer_share(run: Run) -> float:
    """The share of their time that is transfer: the rank that came last is in a broadcast for the shortest time."""
    # At a window's edge some miss one.
    took = [place.recorded_collectives.duration_ns[_recorded(place)] for place in run.places]
    if len(took) < 2 or len({each.size for each in took}) > 1 or not took[0].size:
        return transfer_share(run)
    return float(np.stack(took).min(axis=0).sum() / max(np.stack(took).sum(axis=1).mean(), 1))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the exposed time of these broadcasts: the forward pass waits for them."""

    def of_buffers(place: Place) -> Mask:
        rows: Mask = _recorded(place)[place.in_window("collectives")]
        return rows

    found = of_collectives(run, of_buffers, _transfer_share(run), at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="broadcast-buffers",
        saving=Shares(at["won_share_low"], 1.0).of(found.ns),
        confidence="high" if len(run.places) > 1 else "medium",
        values={"broadcasts_per_step": found.per_step, **found.time_values("exposed")},
        evidence=(Measure("exposed broadcasts of buffers", found.ns, "ns"),),
    )
