"""Gradients are sent so late that no backward pass is left to hide them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from perfdoctor.detectors.of_work import of_collectives
from perfdoctor.detectors.saved_shares import half_certain
from perfdoctor.metrics.communication.collectives import exposed_rows_ns, sizes_can_be_judged, transfer_share
from perfdoctor.metrics.communication.hideable import backward_ns, bucketed_ns, taken
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import torch as torch_names


def _gradients(place: Place) -> Mask:
    """One bool a row: an all-reduce launched by the hook of a parameter's gradient.

    DDP sends a bucket from the hook of the parameter whose gradient was its last.
    """
    frame = place.collectives
    inside = launches_of(place, "collectives").while_open(torch_names.GRADIENT_HOOK, "ops", "ranges")
    return frame.text("kind").equals("all_reduce") & inside


def _largest_share(place: Place) -> float:
    """The largest buckets' share of all gradients' bytes (of their time, where bytes are unknown), one a step."""
    frame = place.collectives.take(_gradients(place))
    size = frame["bytes"] if (frame["bytes"] != UNKNOWN).all() else frame.duration_ns
    return float(np.sort(size)[-place.units :].sum() / max(size.sum(), 1))


def _hidden_ns(place: Place, transfer: float, backward_share: float) -> float:
    """Ns of the window that a backward pass hides of buckets of DDP's default size."""
    rows = _gradients(place)
    return bucketed_ns(place, rows, exposed_rows_ns(place, rows) * transfer, transfer, backward_share)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find buckets whose time is mostly exposed although there is compute to hide them."""
    transfer = transfer_share(run, "all_reduce")
    found = of_collectives(run, _gradients, transfer, at["min_share_of_step"])
    if found is None or not sizes_can_be_judged(run, found.worst, found.worst_rows):
        return
    worst, rows = found.worst, found.worst_rows
    frame = worst.collectives.take(rows)
    took_ns = int(frame.duration_ns.sum())
    hidden_ns = took_ns - exposed_rows_ns(worst, rows)
    # Of gradients that take longer than the backward pass only as much can be hidden: the network is the limit.
    if hidden_ns > at["max_hidden_share"] * min(took_ns, at["backward_share"] * worst.compute.total_ns):
        return
    buckets, sizes = len(frame) / worst.units, frame["bytes"]
    # In buckets all but the last travel beside compute, as far as there is compute that nothing travels beside.
    free_ns = run.mean(lambda place: (place.compute - place.communication).total_ns)
    most_ns = run.mean(lambda place: backward_ns(place, at["backward_share"]))
    hideable_ns = min(run.mean(lambda place: _hidden_ns(place, transfer, at["backward_share"])), found.ns, most_ns)
    beside = taken(run)
    saving = half_certain(int(beside.won(hideable_ns)), min(found.ns, most_ns))
    yield found.finding(
        rule="late-gradient-bucket",
        # Of one rank alone it may be waiting for a late one, which no bucket fixes.
        saving=saving if len(run.places) > 1 else replace(saving, low=0),
        bound_ns=most_ns,
        confidence="high" if len(run.places) > 1 else "medium",
        values={
            "buckets_per_step": buckets,
            "largest_percent": percent(_largest_share(worst)),
            **found.time_values("exposed"),
            "hidden_percent": percent(hidden_ns / max(took_ns, 1)),
            "hideable_ms": ms(hideable_ns),
            "taken_share": beside.likely,
            "most_ms": ms(most_ns),
        },
        sources={"taken_share": beside.source},
        evidence=(
            Measure("exposed all-reduces of gradients", found.ns, "ns"),
            Measure("compute that no collective runs beside", free_ns, "ns"),
            *([Measure("middle bucket", float(np.median(sizes)), "bytes")] if (sizes != UNKNOWN).all() else []),
        ),
        situation="one-bucket" if buckets < at["few_buckets"] else "",
        formula="" if len(run.places) > 1 else "one-rank",
    )
