"""Blocking calls that drain the queue, so that the device runs dry until the host has launched again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.metrics.host.sync_sources import syncs
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find blocking calls after which the device ran dry: a sync with work left in the queue costs nothing."""
    found = of_cause(run, "host_sync", at["min_share_of_step"])
    if found is None:
        return
    worst, calls = found.worst, _calls(found.worst)
    # The calls after which the device ran dry, with the op and the user's line that made them where recorded.
    sources = syncs(worst).sources()
    dry = tuple((call, op, line, times, worst.per_step(ns)) for call, op, line, times, ns in sources[:5])
    columns, units = ("call", "op", "line", "times", "idle a step"), ("text", "text", "text", "count", "ns")
    _, op, line, *_ = dry[0] if dry else ("", "", "")
    call = str((dry or calls.rows)[0][0]) if dry or calls.rows else "a blocking copy"
    yield Finding(
        rule="host-syncs",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.ns),
        confidence="medium",
        values={
            **found.time_values("lost"),
            "dry_per_step": found.times_per_step,
            "call": call,
            "where": (f" from `{op}`" if op else "") + (f" in `{line}`" if line else ""),
        },
        evidence=(
            Measure("GPU idle after blocking calls", found.ns, "ns"),
            calls,
            Rows("Where the GPU ran dry", columns, units, dry),
        ),
    )


def _calls(place: Place) -> Rows:
    """The blocking calls inside the window by name, with how long the host stood in them."""
    blocking = place.timeline.calls.take(place.host.blocking)
    inside = blocking.take((blocking.end_ns > place.window.starts[0]) & (blocking.start_ns < place.window.ends[-1]))
    if place.asked is not None:
        inside = blocking.take(place.asked.overlap_ns(blocking.start_ns, blocking.end_ns) > 0)
    found = [(name, count, int(total)) for name, count, total in inside.name.sums(inside.duration_ns)]
    rows = sorted(found, key=lambda row: -row[2])
    columns = ("call", "count", "host waited")
    return Rows("Blocking calls in the window", columns, ("text", "count", "ns"), tuple(rows[:5]))
