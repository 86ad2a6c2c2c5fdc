"""Sharded parameters are gathered only when the compute that needs them waits already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_work import of_collectives
from perfdoctor.detectors.saved_shares import half_certain
from perfdoctor.metrics.communication.collectives import transfer_share
from perfdoctor.metrics.communication.hideable import hideable, taken
from perfdoctor.metrics.units import ms
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure

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
    """Does the training gather parameters and scatter gradients many times a step? No other one does both."""
    scatters = np.count_nonzero(place.collectives.text("kind").equals("reduce_scatter"))
    fewest = at["min_gathers_per_step"] * place.units
    return bool(np.count_nonzero(_gathers(place)) >= fewest and scatters * 2 >= fewest)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find gathers that were not begun while the layer before was computing."""
    found = of_collectives(run, _late, transfer_share(run, "all_gather"), at["min_share_of_step"])
    if found is None or not _is_sharded(found.worst, at):
        return
    worst = found.worst
    late, gathers = np.count_nonzero(found.worst_rows), np.count_nonzero(_gathers(worst))
    if late < at["min_late_share"] * gathers:
        return
    # The compute that could hide them: what no collective runs beside. The first gather of a step has none before it.
    free_ns = run.mean(lambda place: (place.compute - place.communication).total_ns)
    hidden_ns = run.mean(lambda place: hideable(run, place, 0.0).parameters_ns)
    beside = taken(run)
    prefetched_ns = int(beside.won(min(found.ns * (1 - worst.units / late), hidden_ns, free_ns)))
    yield found.finding(
        rule="late-gathers",
        saving=half_certain(prefetched_ns, min(found.ns, free_ns)),
        bound_ns=free_ns,
        confidence="high" if len(run.places) > 1 else "medium",
        values={
            "late_per_step": late / worst.units,
            "gathers_per_step": gathers / worst.units,
            **found.time_values("exposed"),
            "hidden_ms": ms(hidden_ns),
            "free_ms": ms(free_ns),
            "taken_share": beside.likely,
        },
        sources={"taken_share": beside.source},
        evidence=(
            Measure("exposed time of late gathers", found.ns, "ns"),
            Measure("compute that could hide it", free_ns, "ns"),
            Measure("gathers that began with no kernel running", late / gathers, "share"),
        ),
    )
