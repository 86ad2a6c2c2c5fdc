"""Blocking calls that drain the queue, so that the device runs dry until the host has issued again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.host.sync_sources import syncs
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows


def _sync_ns(place: Place) -> int:
    return place.idle_ns("host_sync")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Only where the device really ran dry: a sync with work left in the queue costs nothing."""
    share = run.share(_sync_ns)
    if share < at["min_share_of_step"]:
        return
    lost_ns = run.mean(_sync_ns)
    worst = run.worst(_sync_ns)
    calls, sources = _calls(worst), _sources(worst)
    call = str((sources.rows or calls.rows)[0][0]) if sources.rows or calls.rows else "a blocking copy"
    yield Finding(
        rule="host-syncs",
        saving_ns_per_step=saving(lost_ns, at["recoverable_share_low"], at["recoverable_share_likely"]),
        confidence="medium",
        values={
            "lost_ms": ms(lost_ns),
            "step_ms": ms(run.step_ns),
            "lost_percent": percent(share),
            "dry_per_step": len(worst.idle_causes["host_sync"]) / worst.units,
            "call": call,
            "where": _where(sources),
        },
        evidence=(Measure("GPU idle after blocking calls", lost_ns, "ns"), calls, sources),
    )


def _calls(place: Place) -> Rows:
    """The blocking calls inside the window by name, with how long the host stood in them."""
    blocking = place.timeline.calls.take(place.host.blocking)
    inside = blocking.take((blocking.end_ns > place.window.starts[0]) & (blocking.start_ns < place.window.ends[-1]))
    if place.asked is not None:
        inside = blocking.take(place.asked.overlap_ns(blocking.start_ns, blocking.end_ns) > 0)
    codes, values = inside.name.codes, inside.name.values
    count = np.bincount(codes, minlength=len(values))
    total = np.bincount(codes, weights=inside.duration_ns, minlength=len(values))
    found = [(values[code], int(count[code]), int(total[code])) for code in np.flatnonzero(count).tolist()]
    rows = sorted(found, key=lambda row: -row[2])
    return Rows(
        "Blocking calls in the window", ("call", "count", "host waited"), ("text", "count", "ns"), tuple(rows[:5])
    )


def _sources(place: Place) -> Rows:
    """The calls after which the device ran dry, with the op and the user's line that made them where recorded."""
    found = syncs(place)
    rows = found.sources(np.ones(len(found.calls), dtype=bool))
    return Rows(
        "Where the GPU ran dry",
        ("call", "op", "line", "times", "idle a step"),
        ("text", "text", "text", "count", "ns"),
        tuple((call, op, line, times, place.per_step(ns)) for call, op, line, times, ns in rows[:5]),
    )


def _where(sources: Rows) -> str:
    """` from op in line` of the first row, as far as it is known."""
    if not sources.rows:
        return ""
    _, op, line, *_ = sources.rows[0]
    return (f" from `{op}`" if op else "") + (f" in `{line}`" if line else "")
