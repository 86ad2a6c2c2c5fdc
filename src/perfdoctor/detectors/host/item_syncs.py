"""Values are read from the device one by one (`.item()`, `nonzero`, a mask as index), and it runs dry each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_idle import part_of_cause
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.metrics.accounting.behind_idle import host_rows
from perfdoctor.metrics.accounting.longest import longest
from perfdoctor.metrics.host.sync_sources import Syncs, around_update, syncs, waits_within
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Frame
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.vocabulary.names import torch as torch_names


@once_per_place
def _reading(place: Place) -> Syncs:
    """The calls made by an op that reads a value, outside the optimizer's update."""
    found = syncs(place)
    if not len(found.calls) or not len(found.ops):
        return found.of(np.zeros(len(found.calls), dtype=bool))
    reads = found.ops.name.matches(torch_names.READS_VALUE)[np.maximum(found.op, 0)] & (found.op >= 0)
    return found.of(reads & ~around_update(place).covers(found.calls.start_ns))


@once_per_place
def _reads(place: Place) -> Frame:
    """The ops that read a value."""
    return host_rows(place, ("ops",)).named(torch_names.READS_VALUE)


@once_per_place
def _reading_time(place: Place) -> Intervals:
    """When the host was in an op that reads a value, outside the optimizer's update."""
    return _reads(place).intervals - around_update(place)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the part of what host-syncs counts whose op shows that a value was read."""
    found = part_of_cause(run, "host_sync", lambda place: _reading(place).total_ns, at["min_share_of_step"])
    if found is None:
        return
    worst = found.worst
    sources = _reading(worst).sources()
    reads = _reads(worst)
    innermost = reads.take(~reads.name.where(lambda name: name == "aten::item"))  # it calls _local_scalar_dense
    per_step = int((worst.window.overlap_ns(innermost.start_ns, innermost.end_ns) > 0).sum()) / worst.units
    _, op, line, *_ = sources[0]
    yield Finding(
        rule="item-syncs",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.ns),
        confidence="high",
        values={
            **found.time_values("lost"),
            "reads_per_step": per_step,
            "op": op,
            "where": f" in {line}" if line else "",
        },
        evidence=(
            Measure("GPU idle after values were read", found.ns, "ns"),
            Measure("values read a step", per_step, "count"),
            Rows(
                "Reads that made the GPU run dry",
                ("op", "line", "times", "idle a step"),
                ("text", "text", "count", "ns"),
                tuple((op, line, times, worst.per_step(ns)) for _, op, line, times, ns in sources[:5]),
            ),
            *longest(run, _reading(worst).longest(worst)),
        ),
        affected_ns=found.ns,
        waits=waits_within(run, _reading_time),
    )
