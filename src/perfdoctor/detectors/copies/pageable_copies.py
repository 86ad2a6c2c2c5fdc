"""Copies between the device and host memory that is not pinned, where they cost time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.affected import affected
from perfdoctor.detectors.savings import CERTAIN_SHARE, Shares
from perfdoctor.metrics.accounting.longest import longest_exposed
from perfdoctor.metrics.copies.transfers import before_work_begins, host_memory, pinned_evidence
from perfdoctor.metrics.work.device_peaks import measured
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Frame
from perfdoctor.records.findings import Finding, Measure


def _pageable(place: Place) -> Frame:
    return place.copies.take(host_memory(place, "pageable") & ~before_work_begins(place))


def _exposed_ns(place: Place) -> int:
    rows = _pageable(place)
    return (Intervals.of(rows.start_ns, rows.end_ns) & place.exposed_copies).total_ns


def _saved_share(place: Place, rows: Frame, assumed: float) -> float:
    """Of the time of these copies, if they came from pinned memory, as fast as measured, else as assumed."""
    rates, direction = measured(place), rows.text("direction")
    speedups = {name: (rates.pinned_speedup(name) if rates else 0.0) or assumed for name in direction.values}
    saved = np.array([max(1 - 1 / speedups[name], 0.0) for name in direction.values])
    return float(np.average(saved[direction.codes], weights=np.maximum(rows.duration_ns, 1)))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """A pageable copy that compute hides, or of a few bytes, is no finding."""
    found = affected(run, _exposed_ns, at["min_share_of_step"])
    if found is None:
        return
    worst, rows = found.worst, _pageable(found.worst)
    size = int(np.maximum(rows["bytes"], 0).sum())
    rate = size / max(int(rows.duration_ns.sum()), 1)  # bytes per ns = GB/s
    faster = _saved_share(worst, rows, at["pinned_speedup"])
    yield Finding(
        rule="pageable-copies",
        saving_ns_per_step=Shares(faster * CERTAIN_SHARE, faster).of(found.ns),
        confidence="high",
        values={
            **found.time_values("exposed"),
            "megabytes": size / worst.units / 1e6,
            "gigabytes_per_second": rate,
        },
        evidence=(
            Measure("pageable copies with no kernel beside them", found.ns, "ns"),
            Measure("bytes a step", size / worst.units, "bytes"),
            Measure("rate", rate * 1e9, "bytes_per_second"),
            *pinned_evidence(worst),
            *longest_exposed(run, "copies", lambda place: place.copies.text("host_memory").equals("pageable")),
        ),
    )
