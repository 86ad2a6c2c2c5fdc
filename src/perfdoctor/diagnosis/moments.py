"""At which moment does a finding show best on the timeline? At the longest of the work or time that it is about.

Of kernels that is the longest run of them with nothing else between, inside one step; of copies and collectives the one
that kept the device waiting longest; of idle time the longest stretch of its cause.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfdoctor.metrics.accounting.driving_threads import LAUNCHING_GAP_NS
from perfdoctor.metrics.accounting.longest import Moment, longest, longest_exposed, longest_idle, longest_piece
from perfdoctor.metrics.finding_rows import thread_time
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Span
from perfdoctor.replay.edits.actions import WORK_SIGNALS
from perfdoctor.replay.edits.chosen_work import chosen_of
from perfdoctor.vocabulary.parts import IDLE_CAUSES, SHRINKS
from perfdoctor.vocabulary.rulebook import Rule


def moments(rule: Rule, finding: Finding, run: Run) -> tuple[Span, ...]:
    """The moment as evidence; () if the finding shows one itself, or its place is unknown."""
    if any(isinstance(evidence, Span) for evidence in finding.evidence):
        return ()
    return tuple(_found(rule, finding, run))


def _found(rule: Rule, finding: Finding, run: Run) -> Iterator[Span]:
    if finding.thread_time:
        times = ((place.rank, thread_time(place, finding) & place.window) for place in run.places)
        return longest(run, (moment for rank, time in times for moment in longest_piece(rank, time)))
    if rule.action == "copies":
        return longest_exposed(run, "copies", lambda place: chosen_of(place, ("copies",), finding.work))
    if rule.action == "collectives":
        return longest_exposed(run, "collectives", lambda place: chosen_of(place, ("collectives",), finding.work))
    if rule.action == "lateness":  # it is seen where another rank waits for the late one
        is_late = finding.work
        return longest_exposed(
            run, "collectives", lambda place: np.full(len(place.collectives), place.rank_and_device not in is_late)
        )
    if rule.action in WORK_SIGNALS:
        return longest(run, (moment for place in run.places for moment in _run_of_work(place, rule.action, finding)))
    is_part = rule.symptom_of and rule.action not in IDLE_CAUSES  # of the waits, or of launching: which part is unknown
    cause = SHRINKS.get(rule.action)
    if cause in IDLE_CAUSES and not is_part:
        return longest_idle(run, cause)
    return iter(())


def _run_of_work(place: Place, action: str, finding: Finding) -> list[Moment]:
    """The run of chosen kernels that took longest, with no other kernel between and no step's edge in it."""
    frames = [place.own(signal) for signal in WORK_SIGNALS[action]]
    rows = chosen_of(place, WORK_SIGNALS[action], finding.work)
    if not finding.work or not rows.any():  # all the work there is: that is not a moment
        return []
    start, end = (np.concatenate([frame[column] for frame in frames]) for column in ("start_ns", "end_ns"))
    by_start = np.argsort(start, kind="stable")
    chosen = np.flatnonzero(rows[by_start])
    start, end = start[by_start][chosen], end[by_start][chosen]
    step = np.searchsorted(place.steps.even_bounds, start, side="right")
    begins = np.ones(chosen.size, dtype=bool)
    begins[1:] = (np.diff(chosen) > 1) | (np.diff(step) > 0) | (start[1:] - end[:-1] > LAUNCHING_GAP_NS)
    first = np.flatnonzero(begins)
    took_ns = np.add.reduceat(place.window.overlap_ns(start, end), first)
    at = int(np.argmax(took_ns))
    return [(place.rank, int(start[first[at]]), int(np.maximum.reduceat(end, first)[at]))]
