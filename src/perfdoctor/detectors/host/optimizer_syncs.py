"""The update of the parameters waits for a value from the device (GradScaler, clipping, the optimizer's own step)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import part_of_cause
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.metrics.accounting.behind_idle import host_rows
from perfdoctor.metrics.accounting.longest import longest
from perfdoctor.metrics.host.sync_sources import Syncs, around_update, syncs, waits_within
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.vocabulary.names import torch as torch_names


@once_per_place
def _updating(place: Place) -> Syncs:
    """The blocking calls made around the update."""
    found = syncs(place)
    return found.of(around_update(place).covers(found.calls.start_ns))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the part of what host-syncs counts that calls around the update cause."""
    found = part_of_cause(run, "host_sync", lambda place: _updating(place).total_ns, at["min_share_of_step"])
    if found is None:
        return
    sources = _updating(found.worst).sources()
    scaled = bool(host_rows(found.worst, ("ops",)).name.matches(torch_names.UNSCALES).any())
    times_per_step = sum(times for *_, times, _ in sources) / found.worst.units
    yield Finding(
        rule="optimizer-syncs",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.ns),
        confidence="high",
        values={**found.time_values("lost"), "times_per_step": times_per_step},
        evidence=(
            Measure("GPU idle after blocking calls around the update", found.ns, "ns"),
            Rows(
                "Calls around the update that made the GPU run dry",
                ("call", "op", "line", "times", "idle a step"),
                ("text", "text", "text", "count", "ns"),
                tuple((call, op, line, times, found.worst.per_step(ns)) for call, op, line, times, ns in sources[:5]),
            ),
            *longest(run, _updating(found.worst).longest(found.worst)),
        ),
        situation="scaler" if scaled else "",
        affected_ns=found.ns,
        waits=waits_within(run, around_update),
    )
