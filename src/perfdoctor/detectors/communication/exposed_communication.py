"""Collectives that keep the compute streams waiting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.communication.collectives import (
    bandwidth_table,
    bandwidths,
    transfer_share,
    waited_for,
    won_by_all_ns,
)
from perfdoctor.metrics.communication.merged_collectives import asking_ns, evened_ns, messages_ns
from perfdoctor.metrics.communication.missing_ranks import largest_transfer_share, ranks_missing, ranks_of_job
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.records.savings import Saving


def _exposed_ns(place: Place) -> int:
    return place.exposed_communication.total_ns


def _hideable_ns(place: Place) -> int:
    """As much as there is compute that no collective runs beside."""
    free = place.compute - place.communication
    return min(_exposed_ns(place), free.total_ns)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Exposed communication that is transfer: what waits for a late rank is rank-skew's.

    Without a GPU, threads of the host send, and each message has its price. Merged into one a step, most of that goes,
    and so does the waiting of ranks that are late by turns.
    """
    transfer = transfer_share(run)
    exposed_share = run.share(_exposed_ns) * transfer
    if exposed_share < at["min_share_of_step"]:
        return
    exposed_ns = round(run.mean(_exposed_ns) * transfer)
    # Only what compute waited for can be won: where it waits for the host, a collective beside it costs nothing.
    waited_ns = min(round(run.mean(lambda place: waited_for(place).total_ns) * transfer), exposed_ns)
    waited_ns = round(min(waited_ns, won_by_all_ns(run)))
    missing = ranks_missing(run)
    if missing:  # what waits for a rank that was not recorded is nothing that this rank could win
        waited_ns = round(waited_ns * min(largest_transfer_share(run) / transfer, 1.0))
    most_ns = exposed_ns
    hideable_ns = min(run.mean(_hideable_ns), waited_ns)
    matched = skew(run) if host_places(run) else None
    if matched is not None:
        most_ns = run.mean(_exposed_ns)
        merged_ns = messages_ns(run, matched, at["quick_collectives"])
        hideable_ns = min(run.mean(_hideable_ns) + merged_ns, waited_ns)
        hideable_ns = min(hideable_ns + asking_ns(run, matched) + evened_ns(run, matched), most_ns)
    fewer_bytes_ns = int(waited_ns * at["volume_reducible_share"])
    worst = run.worst(_exposed_ns)
    total = run.mean(lambda place: place.communication.total_ns)
    yield Finding(
        rule="exposed-communication",
        saving_ns_per_step=Saving(min(hideable_ns, fewer_bytes_ns), max(hideable_ns, fewer_bytes_ns), most_ns),
        confidence="high" if len(run.places) > 1 else "medium",
        values={
            "exposed_ms": ms(exposed_ns),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(exposed_share),
            "ranks": len(run.timeline.ranks),
            "job_ranks": ranks_of_job(run),
            "hidden_percent": percent(1 - run.mean(_exposed_ns) / total) if total else 0.0,
        },
        evidence=(
            Measure("exposed communication", exposed_ns, "ns"),
            Measure("compute that could hide it", hideable_ns, "ns"),
            _kinds(worst),
            *_bandwidth(run, at["large_message_bytes"]),
        ),
        situation=_situation(len(run.timeline.ranks), missing),
        affected_ns=most_ns if host_places(run) else 0,
    )


def _situation(ranks: int, missing: int) -> str:
    if ranks == 1:
        return "one-rank"
    return "some-ranks" if missing else ""


def _kinds(place: Place) -> Rows:
    """The worst place's collectives by kind."""
    kind = place.collectives.text("kind")
    ns = place.window.overlap_ns(place.collectives.start_ns, place.collectives.end_ns)
    total = np.bincount(kind.codes, weights=ns, minlength=len(kind.values))
    count = np.bincount(kind.codes, minlength=len(kind.values))
    rows = sorted(
        ((kind.values[c], count[c] / place.units, int(total[c] / place.units)) for c in np.flatnonzero(count).tolist()),
        key=lambda row: -row[2],
    )
    return Rows(
        f"Collectives of rank {place.rank}, a step", ("kind", "count", "time"), ("text", "count", "ns"), tuple(rows[:6])
    )


def _bandwidth(run: Run, min_bytes: float) -> Iterator[Rows]:
    """How fast large messages moved once every rank had come; nothing where that is not known."""
    if measured := bandwidths(run, min_bytes):
        yield bandwidth_table(measured)
