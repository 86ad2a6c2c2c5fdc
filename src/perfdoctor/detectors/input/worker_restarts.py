"""The DataLoader's workers end and are started anew in the middle of the training, which waits for both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_idle import part_of_cause
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.metrics.accounting.behind_idle import host_rows
from perfdoctor.metrics.units import ms
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Frame
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import loaders as loader_names


def _restarts(place: Place) -> Frame:
    """The calls inside the window that made an iterator and started a process in it."""
    functions = host_rows(place, ("functions",))
    begins = functions.named(loader_names.LOADER_BEGINS)
    begins = begins.take(place.window.overlap_ns(begins.start_ns, begins.end_ns) > 0)
    started = functions.named(loader_names.PROCESS_STARTS).intervals
    return begins.take(started.overlap_ns(begins.start_ns, begins.end_ns) > 0)


def _first_batches_ns(place: Place, restarts: Frame, idle: Intervals) -> int:
    """Ns that the device idles longer in the wait for the first batch after a restart than in the usual wait."""
    waits = _waits(place)
    if not waits:
        return 0
    each_ns = idle.overlap_ns(waits.starts, waits.ends)
    first = np.unique(np.searchsorted(waits.starts, restarts.end_ns, side="left"))
    first = first[first < len(waits)]
    others = np.delete(each_ns, first)
    usual_ns = float(np.median(others)) if others.size else 0.0
    return int(np.maximum(each_ns[first] - usual_ns, 0).sum()) if others.size else 0


def _waits(place: Place) -> Intervals:
    """The waits for a batch of a loader that exists."""
    ranges, functions = host_rows(place, ("ranges", "ops")), host_rows(place, ("functions",))
    ranges, functions = ranges.named(loader_names.INPUT_WAIT), functions.named(loader_names.INPUT_WAIT_FUNCTION)
    made = functions.named(loader_names.LOADER_BEGINS).intervals
    return ((ranges.intervals | functions.intervals) & place.window) - made


def _lost_ns(place: Place) -> int:
    """Ns of the window that the device idles because workers end, are started, and make their first batch."""
    rows = _restarts(place)
    if not len(rows):
        return 0
    idle, functions = place.idle_causes["input_wait"], host_rows(place, ("functions",))
    changing = rows.intervals | functions.named(loader_names.WORKERS_END).intervals  # these end with the last batch
    return (idle & changing).total_ns + _first_batches_ns(place, rows, idle - changing)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find restarts in steady steps: the first start of a training is none."""
    found = part_of_cause(run, "input_wait", _lost_ns, at["min_share_of_step"])
    if found is None:
        return
    rows = _restarts(found.worst)
    # Then faster samples or more workers, the fixes for a wait, do not help.
    is_most = found.ns > at["most_of_the_wait"] * run.mean(lambda place: place.idle_ns("input_wait"))
    yield Finding(
        rule="worker-restarts",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.ns),
        confidence="high",
        values={
            **found.time_values("lost"),
            "restarts": len(rows),
            "steps_seen": found.worst.units,
            "longest_ms": ms(int(rows.duration_ns.max(initial=0))),
        },
        evidence=(
            Measure("idle while workers ended, were started, and their first batch was awaited", found.ns, "ns"),
            Measure("times in the steps analysed", len(rows), "count"),
            Measure("longest start", int(rows.duration_ns.max(initial=0)), "ns"),
        ),
        explains=("input-wait",) if is_most else (),
    )
