"""Kernels are loaded, code is compiled, graphs are captured: what a program does once, before its steps or instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from perfdoctor.detectors.of_idle import Idle, of_idle
from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.accounting.start import before_first_step, innermost, of_a_start, once_kinds, united, what
from perfdoctor.metrics.units import ms
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Rows

#: Where a recording holds nothing but a start, what else is seen of the host belongs to the start too.
_PART_OF_A_START = ("host-work", "launch-bound", "idle-unknown", "allocator-churn", "blocking-checkpoint", "host-syncs")
#: Where nothing of the host was recorded.
_NO_NAME = "host not recorded"
Kinds = Callable[[Place], Mapping[str, Intervals]]


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find what comes once; where several steps were found, `recompilation` says whether it comes again in them."""
    inside = () if run.repeats else tuple(_instead_of_steps(run, at))
    if inside or not run.per_step:
        yield from inside
    else:
        yield from _before_steps(run, at)


def _instead_of_steps(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find what comes once in a recording without steps, or of a single one."""
    found = of_idle(run, at["min_share_of_step"], lambda place: united(of_a_start(place)))
    if found is None:
        return

    def launching_beside(place: Place) -> Intervals:
        """When work is launched, outside of what comes once."""
        return (place.host.launching & place.window) - united(of_a_start(place)) - place.host.once

    launching = of_idle(run, 0.0, launching_beside)
    is_steady = launching is not None and launching.share > at["launching_beside"]
    only = found.share >= at["most_of_the_recording"] and not is_steady
    yield _finding(found, of_a_start, "first_calls" if only else "", _PART_OF_A_START if only else ())


def _before_steps(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find what comes once before the first step, where it takes much of the recording, and longer than a step."""
    start = before_first_step(run)
    found = of_idle(start, 0.0, lambda place: united(once_kinds(place))) if start else None
    if start is None or found is None:
        return
    recorded_ns = start.step_ns + run.mean(lambda place: place.window_ns * place.units)
    if found.ns >= max(at["min_share_of_step"] * recorded_ns, at["longer_than_steps"] * run.step_ns):
        yield _finding(found, once_kinds, "before_steps")


def _finding(found: Idle, kinds: Kinds, situation: str, explains: tuple[str, ...] = ()) -> Finding:
    each = [(what(kind), pieces) for kind, pieces in kinds(found.worst).items() if pieces]
    each.sort(key=lambda kind: -kind[1].total_ns)
    rows = [(kind, p.total_ns, int(p.durations_ns.max()), _name(found.worst, p)) for kind, p in each]
    return Finding(
        rule="one-time-costs",
        situation=situation,
        explains=explains,
        saving_ns_per_step=NO_SAVING,
        confidence="high",
        values={**found.time_values("lost"), "what": rows[0][0], "most_ms": ms(rows[0][1]), "name": rows[0][3]},
        evidence=(
            Rows(
                "What comes once",
                ("what", "time", "longest", "innermost on the host"),
                ("text", "ns", "ns", "text"),
                tuple(rows),
            ),
        ),
    )


def _name(place: Place, pieces: Intervals) -> str:
    named = innermost(place, pieces)
    return named[0].name if named else _NO_NAME
