"""The DataLoader's workers are started anew in the middle of the training, and the first batch waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure
from perfdoctor.metrics import host_names
from perfdoctor.metrics.behind_idle import host_rows
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.model import Frame


def _restarts(place: Place) -> Frame:
    """Iterators made inside the window in whose making a process was started."""
    functions = host_rows(place, ("functions",))
    begins = functions.take(functions.name.matches(host_names.LOADER_BEGINS))
    begins = begins.take(place.window.overlap_ns(begins.start_ns, begins.end_ns) > 0)
    starts = functions.take(functions.name.matches(host_names.PROCESS_STARTS))
    started = Intervals.of(starts.start_ns, starts.end_ns)
    return begins.take(started.overlap_ns(begins.start_ns, begins.end_ns) > 0)


def _lost_ns(place: Place) -> int:
    rows = _restarts(place)
    return (place.idle_causes["input_wait"] & Intervals.of(rows.start_ns, rows.end_ns)).total_ns


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """In steady steps only: the first start of a training is none."""
    if run.share(lambda place: place.idle_ns("input_wait")) < at["min_share_of_step"]:
        return  # a part of it is less
    share = run.share(_lost_ns)
    if share < at["min_share_of_step"]:
        return
    lost_ns, worst = run.mean(_lost_ns), run.worst(_lost_ns)
    rows = _restarts(worst)
    yield Finding(
        rule="worker-restarts",
        saving_ns_per_step=saving(lost_ns, at["recoverable_share_low"], at["recoverable_share_likely"]),
        confidence="high",
        values={
            "lost_ms": ms(lost_ns),
            "step_ms": ms(run.step_ns),
            "lost_percent": percent(share),
            "restarts": len(rows),
            "steps_seen": worst.units,
            "longest_ms": ms(int(rows.duration_ns.max(initial=0))),
        },
        evidence=(
            Measure("idle while workers were started", lost_ns, "ns"),
            Measure("times in the steps looked at", len(rows), "count"),
            Measure("longest start", int(rows.duration_ns.max(initial=0)), "ns"),
        ),
    )
