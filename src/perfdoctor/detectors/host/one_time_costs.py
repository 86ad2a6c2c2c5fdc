"""Kernels are loaded, code is compiled, graphs are captured: what a program does once, before its steps or instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from perfdoctor.detectors.of_idle import Idle, of_idle
from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.accounting.start import always_once, before_first_step, innermost, once_kinds, united, what
from perfdoctor.metrics.units import ms
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Rows, Value

#: Where a recording holds nothing but a start, what else is seen of the host belongs to the start too.
_PART_OF_A_START = ("host-work", "launch-bound", "idle-unknown", "allocator-churn", "blocking-checkpoint", "host-syncs")
#: Where nothing of the host was recorded.
_NO_NAME = "host not recorded"
Kinds = Callable[[Place], Mapping[str, Intervals]]


def _launching_beside(place: Place) -> Intervals:
    """While work is launched, outside of what comes once."""
    return (place.host.launching & place.window) - place.idle_causes["compilation"] - place.host.once


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Where several steps were found, `recompilation` says whether it comes again in them."""
    inside = () if run.repeats else tuple(_instead_of_steps(run, at))
    if inside or not run.per_step:
        yield from inside
    else:
        yield from _before_steps(run, at)


def _instead_of_steps(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """In a recording without steps, or of a single one."""
    found = of_idle(run, at["min_share_of_step"], lambda place: united(always_once(place)))
    if found is None:
        return
    launching = of_idle(run, 0.0, _launching_beside)
    is_steady = launching is not None and launching.share > at["launching_beside"]
    only = found.share >= at["most_of_the_recording"] and not is_steady
    yield _finding(found, always_once, "first_calls" if only else "", _PART_OF_A_START if only else ())


def _before_steps(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """What comes once takes this share of all that was recorded, and longer than a step."""
    start = before_first_step(run)
    found = of_idle(start, 0.0, lambda place: united(once_kinds(place))) if start else None
    if start is None or found is None:
        return
    recorded_ns = start.step_ns + run.mean(lambda place: place.window_ns * place.units)
    if found.ns >= max(at["min_share_of_step"] * recorded_ns, at["longer_than_steps"] * run.step_ns):
        yield _finding(found, once_kinds, "before_steps")


def _finding(found: Idle, kinds: Kinds, situation: str, explains: tuple[str, ...] = ()) -> Finding:
    each = {kind: pieces for kind, pieces in kinds(found.worst).items() if pieces}
    order = sorted(each, key=lambda kind: -each[kind].total_ns)
    return Finding(
        rule="one-time-costs",
        situation=situation,
        explains=explains,
        saving_ns_per_step=NO_SAVING,
        confidence="high",
        values={
            **found.time_values("lost"),
            "what": what(order[0]),
            "most_ms": ms(each[order[0]].total_ns),
            "name": _name(found.worst, each[order[0]]),
        },
        evidence=(
            Rows(
                "What comes once",
                ("what", "time", "longest", "innermost on the host"),
                ("text", "ns", "ns", "text"),
                tuple(_row(found.worst, kind, each[kind]) for kind in order),
            ),
        ),
    )


def _row(place: Place, kind: str, pieces: Intervals) -> tuple[Value, ...]:
    return what(kind), pieces.total_ns, int(pieces.durations_ns.max()), _name(place, pieces)


def _name(place: Place, pieces: Intervals) -> str:
    named = innermost(place, pieces)
    return named[0].name if named else _NO_NAME
