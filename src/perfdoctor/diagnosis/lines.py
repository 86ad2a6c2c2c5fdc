"""Which lines of the user's own code does a finding come from? Those that were sampled in the time that it is about.

Of idle time by a cause it is the training thread's line at that moment; of a wait for data that of the loader's
workers, which prepare the batch meanwhile; of ops that of the forward pass, from which those of the backward follow; of
collectives of a training without a GPU that in which they are waited for; of waits for a late rank that rank's line.
Where stacks were recorded and not sampled, it is the function instead. A line that runs a library's loop, in which all
steps pass, is named only where no line inside is the user's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.metrics.finding_rows import thread_time
from perfdoctor.metrics.host import sampled_lines
from perfdoctor.metrics.host.own_code import own_functions, time_in_functions
from perfdoctor.metrics.host.sampled_lines import SampledLine, place_of
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import CodeLine, Finding
from perfdoctor.vocabulary.names import python_code
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.parts import IDLE_CAUSES, SHRINKS
from perfdoctor.vocabulary.rulebook import Rule

#: Further lines have little of the time, or are as many as the program has.
_SHOWN = 3
#: Of lines in fewer samples half were wrong: the share of a line in four samples is known to a factor of two.
_FEWEST_SAMPLES = 5


def code_lines(rule: Rule, finding: Finding, run: Run) -> tuple[CodeLine, ...]:
    """The lines with most samples first; () if no stacks are known, or the finding is not about the host."""
    timeline = run.timeline
    if finding.run_steps:
        return finding.lines
    if not sampled_lines.on_clock(timeline):
        return _functions(rule, finding, run) if len(timeline["functions"]) else ()
    found = [each for each in _sampled(rule, finding, run) if each.samples >= _FEWEST_SAMPLES]
    loops = sampled_lines.loops(timeline, found)
    own = [each for each in found if each not in loops]
    return tuple(
        CodeLine(*each.place, each.samples, each.share, each.text(timeline), is_worker=each.is_worker, is_loop=not own)
        for each in (own or loops[:1])[:_SHOWN]
    )


def facts_of(rule: Rule, finding: Finding, run: Run) -> frozenset[str]:
    """The facts of this finding alone: what most of its time is spent in, as ranges or sampled stacks show it."""
    known = {"stacks"} if len(run.timeline["functions"]) or len(run.timeline["stack_samples"]) else set()
    times = [(rank, pieces) for rank, pieces in _times(rule, finding, run) if pieces]
    stacks = sampled_lines.stacks_of_training(run.timeline, times)
    most = MOST_OF_IT * stacks.total()
    updates = _count(stacks, python_code.UPDATE)
    if updates > most or (not stacks and _in_updates(run, times)):
        known.add("updating")
    one_by_one = Counter({each: n for each, n in stacks.items() if not python_code.VECTOR_ENVIRONMENT.search(each)})
    if _count(one_by_one, python_code.ENVIRONMENT_STEP) > most:
        known.add("environments")
    return frozenset(known)


def _count(stacks: Counter[str], pattern: re.Pattern[str]) -> int:
    return sum(count for stack, count in stacks.items() if pattern.search(stack))


def _in_updates(run: Run, times: Sequence[tuple[int, Intervals]]) -> bool:
    """Does most of the time lie inside the optimizer's ranges?"""
    inside = 0
    for rank, pieces in times:
        rows = (run.timeline[signal].of(rank=rank) for signal in ("ranges", "ops"))
        updates = Intervals.union(frame.named(torch_names.OPTIMIZER_RANGE).intervals for frame in rows)
        inside += (pieces & updates).total_ns
    return inside > MOST_OF_IT * sum(pieces.total_ns for _, pieces in times)


def _sampled(rule: Rule, finding: Finding, run: Run) -> list[SampledLine]:
    waiting = [place for place in run.places if _cause(rule, finding, place) == "input_wait"]
    if waiting and sampled_lines.has_workers(run.timeline):
        # Where few samples found a worker at work there is no line: that of the training thread only says "wait".
        return sampled_lines.of_workers(run.timeline, ((place.rank, place.window) for place in waiting))
    is_of_ops = SHRINKS.get(rule.action) == "compute"
    lines_of = sampled_lines.of_ops if is_of_ops else sampled_lines.of_training
    return lines_of(run.timeline, _times(rule, finding, run))


def _functions(rule: Rule, finding: Finding, run: Run) -> tuple[CodeLine, ...]:
    """The functions that took most of the time themselves."""
    times = [each for each in _times(rule, finding, run) if own_functions(run.timeline, each[0]).threads]
    took = time_in_functions(run.timeline, times)
    whole_ns = sum(each.total_ns for _, each in times)
    steps = sum(place.units for place in run.places if place.rank in dict(times))
    return tuple(
        CodeLine(*place_of(name), 0, ns / whole_ns, is_function=True, time_ns=round(ns / steps))
        for name, ns in took.most_common(_SHOWN)
    )


def _times(rule: Rule, finding: Finding, run: Run) -> Iterator[tuple[int, Intervals]]:
    for place in run.places:
        times = _time(rule, finding, place)
        if times is not None:
            yield place.rank, times & place.window


def _time(rule: Rule, finding: Finding, place: Place) -> Intervals | None:
    """The time on this place that the finding is about; None if no line of the host stands for it."""
    if finding.thread_time:
        return thread_time(place, finding)
    if finding.waits is not None:
        calls = place.timeline.calls.take(finding.waits).of(rank=place.rank)
        return calls.intervals
    if rule.action == "collectives" and place.device is None:  # its training thread waits for them itself
        return place.exposed_communication
    cause = _cause(rule, finding, place)
    return place.idle_causes[cause] if cause in IDLE_CAUSES else None


def _cause(rule: Rule, finding: Finding, place: Place) -> str:
    """The idle cause or other part of the step in which the lines are; for a late rank the part that makes it late."""
    return dict(finding.lines_in).get(place.rank, "") if finding.lines_in else SHRINKS.get(rule.action, "")
