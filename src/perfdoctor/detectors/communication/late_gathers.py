"""Sharded parameters are gathered only when the compute that needs them waits already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.communication.collectives import exposed_rows_ns, transfer_share
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving

#: Between two collectives that stand in one queue lie microseconds.
_IN_LINE_NS = 20_000


def _gathers(place: Place) -> Mask:
    return place.collectives.text("kind").equals("all_gather")


def _late(place: Place) -> Mask:
    """One bool a row: a gather that began when no kernel was left to hide it.

    One that follows other collectives at once stood behind them. Had the first of these begun beside compute, the links
    are the limit; had it, too, begun with nothing beside it, all of them waited for compute to end.
    """
    start, end = place.collectives.start_ns, place.collectives.end_ns
    # Compute that waits for what was before goes on within microseconds.
    is_alone = place.compute.overlap_ns(start, np.minimum(end, start + _IN_LINE_NS)) == 0
    queue = _bridged(place.communication)
    first = np.maximum(np.searchsorted(queue.starts, start, side="right") - 1, 0)
    begun = np.minimum(queue.starts[first], start) if len(queue) else start
    line_is_alone = place.compute.overlap_ns(begun, begun + _IN_LINE_NS) == 0
    late: Mask = _gathers(place) & is_alone & line_is_alone
    return late


def _bridged(pieces: Intervals) -> Intervals:
    """Stretches in which one collective follows the other at once."""
    if not pieces:
        return pieces
    apart = np.flatnonzero(pieces.starts[1:] - pieces.ends[:-1] > _IN_LINE_NS)
    return Intervals(pieces.starts[np.append(0, apart + 1)], pieces.ends[np.append(apart, len(pieces) - 1)])


def _is_sharded(place: Place, at: Mapping[str, float]) -> bool:
    """Parameters are gathered layer by layer and gradients scattered: no other training does both many times a step."""
    scatters = np.count_nonzero(place.collectives.text("kind").equals("reduce_scatter"))
    fewest = at["min_gathers_per_step"] * place.units
    return bool(np.count_nonzero(_gathers(place)) >= fewest and scatters * 2 >= fewest)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Gathers that were not begun while the layer before was computing."""
    transfer = transfer_share(run, "all_gather")

    def exposed(place: Place) -> float:
        return exposed_rows_ns(place, _late(place)) * transfer

    worst = run.worst(exposed)
    if not _is_sharded(worst, at) or run.share(exposed) < at["min_share_of_step"]:
        return
    late, gathers = np.count_nonzero(_late(worst)), np.count_nonzero(_gathers(worst))
    if late < at["min_late_share"] * gathers:
        return
    exposed_ns = run.mean(exposed)
    # The compute that could hide them: what no collective runs beside. The first gather of a step has none before it.
    free_ns = run.mean(lambda place: (place.compute - place.communication).total_ns)
    prefetched_ns = min(int(exposed_ns * (1 - worst.units / late)), free_ns)
    yield Finding(
        rule="late-gathers",
        saving_ns_per_step=Saving(prefetched_ns // 2, prefetched_ns, min(exposed_ns, free_ns)),
        confidence="high" if len(run.places) > 1 else "medium",
        values={
            "late_per_step": late / worst.units,
            "gathers_per_step": gathers / worst.units,
            "exposed_ms": ms(exposed_ns),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(exposed_ns / run.step_ns),
        },
        evidence=(
            Measure("exposed time of late gathers", exposed_ns, "ns"),
            Measure("compute that could hide it", free_ns, "ns"),
            Measure("gathers that began with no kernel running", late / gathers, "share"),
        ),
        work=work_of(run, _late),
        affected_ns=exposed_ns,
    )
