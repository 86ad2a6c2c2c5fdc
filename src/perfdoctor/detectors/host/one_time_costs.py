"""Kernels are loaded, code is compiled, graphs are captured: what a program does once, in a recording without steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_idle
from perfdoctor.detectors.savings import NO_SAVING
from perfdoctor.metrics.copies.transfers import before_first_kernel, exposed
from perfdoctor.metrics.units import ms
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure

#: Where a recording holds nothing but a start, what else is seen of the host belongs to the start too.
_PART_OF_A_START = ("host-work", "launch-bound", "idle-unknown", "allocator-churn", "blocking-checkpoint", "host-syncs")


def _once(place: Place) -> Intervals:
    """While something is loaded, compiled or captured, or copied before the first kernel."""
    return place.idle_causes["compilation"] | exposed(place, before_first_kernel(place))


def _launching_beside(place: Place) -> Intervals:
    """While work is launched, outside of what comes once."""
    return (place.host.launching & place.window) - place.idle_causes["compilation"] - place.host.once


def _early_copies_ns(place: Place) -> int:
    return exposed(place, before_first_kernel(place)).total_ns


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Where steps were found, `recompilation` tells whether it comes again."""
    found = None if run.per_step else of_idle(run, at["min_share_of_step"], _once)
    if found is None:
        return
    named = found.innermost("calls", "ops", "ranges", "functions")
    launching = of_idle(run, 0.0, _launching_beside)
    is_steady = launching is not None and launching.share > at["launching_beside"]
    only = found.share >= at["most_of_the_recording"] and not is_steady
    yield Finding(
        rule="one-time-costs",
        situation="first_calls" if only else "",
        explains=_PART_OF_A_START if only else (),
        saving_ns_per_step=NO_SAVING,
        confidence="high",
        values={
            **found.time_values("lost"),
            "longest_ms": ms(found.longest_ns),
            "name": named[0].name if named else "the copies before the first kernel",
        },
        evidence=(
            Measure("loading, compiling, capturing, and copies before the first kernel", found.ns, "ns"),
            Measure("of these, copies before the first kernel", round(run.mean(_early_copies_ns)), "ns"),
            Measure("longest", found.longest_ns, "ns"),
            *found.table("Innermost call, op, range or function meanwhile", named),
        ),
    )
