"""How long is what was recorded when nobody records?

Recording costs the host a little time for each op, range, call and Python function, and nothing else: kernels, sleeps,
and waiting for data or for other ranks take as long as ever. How long a step takes without a recorder was timed beside
the recording (`Timeline.unrecorded_step_ns`). What is longer, those rows cost, each the same:

```
recorded step − profiler's flushes − unrecorded step = rows × cost of one
unrecorded part = recorded part − its share of that, by its rows      of a device: of idle time; kernels have none
```

A row costs half of its time at its start and half at its end, inside and outside of it alike. What rows cannot explain,
as one would cost more than `MOST_EVENT_NS`, or leave its op no time of its own, was a slower machine: then every part
is shorter by the same factor, but for the time in which the training thread slept, and for the work of a device, which
is as fast whatever its host does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.driving_threads import driving_rows
from perfdoctor.metrics.finding_rows import thread_time
from perfdoctor.metrics.host import cpu_use
from perfdoctor.metrics.whole_run.kinds import plain_mean_ns
from perfdoctor.metrics.whole_run.partition import partitions
from perfdoctor.model.cache import once_per_place, once_per_run
from perfdoctor.model.host_rows import outermost
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats, Ints
from perfdoctor.records.findings import Finding
from perfdoctor.records.time_split import RealTime
from perfdoctor.vocabulary.parts import IDLE_CAUSES, PARTS, SHRINKS
from perfdoctor.vocabulary.pauses import PAUSES
from perfdoctor.vocabulary.rulebook import Rule

#: What torch.profiler takes for an op with its shapes: 430 to 1,190 ns (PyTorch 2.13, 16 turns of a small training
#: and of 2,000 additions, each against the same without it).
OP_NS = 700
#: A row that would cost more than three times as much did not make the step longer by itself.
MOST_EVENT_NS = 3 * OP_NS
#: The same where a device is recorded: CUPTI adds to what torch.profiler takes. 2.3, 3.0 and 4.2 µs a row were seen in
#: trainings on an H100 that their hosts paced (torch 2.11, CUDA 13.0).
LEAST_EVENT_NS_WITH_DEVICE, MOST_EVENT_NS_WITH_DEVICE = 2_300, 4_200
#: A device that is idle for less than this share of its steps sets their pace: a slower host would not show.
MOST_IDLE_OF_DEVICE_PACED = 0.1
#: What the shortest of torch's ops take on a CPU, called from Python: 735 ns `select`, 789 `view`, 865 `eq` of two
#: numbers, 910 `add` of four (PyTorch 2.13, one thread, the least of 5 times 20,000 calls).
SHORTEST_OP_NS = 700
#: From the start of an op to that of the next one, where nothing but the two is called: among them rows cost most.
_CLOSE_NS = 10_000
#: A part of the step in which a floor is looked for; the rounding of smaller ones would decide for all.
_NOTABLE_PART = 0.1
#: What torch.profiler takes with `with_stack=True` for a call of a Python function or of one built in: 200 to 520 ns
#: more than without it (PyTorch 2.13, three loops of 200,000 calls each), 340 ns in the middle.
FRAME_NS = 340
#: From this share of the time on, what the host seems to take says little of what it takes without a profiler.
MOST_SHARE = 0.1
#: Rows of the host, and what one costs compared with an op.
_WEIGHTS = {"ops": 1.0, "ranges": 1.0, "calls": 1.0, "functions": FRAME_NS / OP_NS}

#: The first and the third quartile: steps between them are the middle half.
_QUARTILES = (0.25, 0.75)
#: A step so many distances of the quartiles above the upper one was disturbed (Tukey, Exploratory Data Analysis, 1977).
_FENCE = 3.0

#: From this share of the step on a training waits for its loader.
_WAITS = 0.03
#: Batches a worker that may come without a wait: two are ready (`prefetch_factor`), two more follow meanwhile.
_WITHOUT_WAIT = 4

Part = Callable[[Place], Intervals]


class _Model(Struct, frozen=True):
    """What recording cost: `event_ns` a row, and without it the rest of the time is `pace` times as long.

    `cost_ns`: the same shared out among those rows alone that lie in time which gets longer. `sleeping`: the share of
    the training thread's idle time that passes as fast whatever is recorded (0-1). `by_others_ns`: what others' use of
    the cores can explain of the step's being longer, which is laid on no row.
    """

    measured_ns: int
    unrecorded_ns: int
    event_ns: float
    events_per_step: float
    cost_ns: float
    pace: float
    sleeping: float
    by_others_ns: int


@once_per_run
def real_time(run: Run) -> RealTime | None:
    """The step with and without a recorder; None where steps were not timed without one, or a range is analysed."""
    model = _model(run)
    if model is None:
        return None
    parts = {part: (_recorded_ns(run, _part(part)), _unrecorded_ns(run, part)) for part in PARTS}
    return RealTime(
        run.step_ns, model.unrecorded_ns, model.measured_ns, model.event_ns, model.events_per_step,
        {part: ns / real if real else np.inf for part, (ns, real) in parts.items() if ns},
        bool(len(run.timeline["functions"])), model.by_others_ns, round(_recorded_ns(run, _part("profiler"))),
    )  # fmt: skip


def real_step_ns(run: Run) -> int:
    """The mean step without a recorder, as far as that is known and another one; else the recorded one. In ns."""
    known = real_time(run)
    return known.unrecorded_ns if known is not None and known.is_notable else run.step_ns


def real_share(rule: Rule, finding: Finding, run: Run) -> float:
    """The share of the finding's time that is also there without a recorder (0-1)."""
    known, model = real_time(run), _model(run)
    if model is None or known is None or not known.is_notable:
        return 1.0
    if finding.thread_time and run.places[0].device is None:

        def part(place: Place) -> Intervals:
            return thread_time(place, finding) & place.window

        recorded_ns, unrecorded_ns = _recorded_ns(run, part), _without_rows_ns(run, part)
    else:
        of_rule = (name for name, part in PARTS.items() if rule.id in part.rules)
        name = SHRINKS[rule.action] if rule.action else next(of_rule, None)
        if name is None:
            return model.pace
        # With fewer kernels their launches go as well.
        names = (name, "launch_bound") if rule.action == "fused" else (name,)
        recorded_ns = sum(_recorded_ns(run, _part(each)) for each in names)
        unrecorded_ns = sum(_unrecorded_ns(run, each) for each in names)
    return unrecorded_ns / recorded_ns if recorded_ns else 1.0


def most_real_share(rule: Rule, finding: Finding, run: Run) -> float:
    """The most that `real_share` may be. What a row costs is inferred: where rows are close, the machine may have been
    slower instead, which makes all time of the training thread longer alike.
    """
    share, model = real_share(rule, finding, run), _model(run)
    if model is None or share == 1 or run.places[0].device is not None:
        return share
    return max(share, model.unrecorded_ns / run.step_ns)


def hidden_cost_ns(place: Place, starts: Ints, ends: Ints) -> Ints:
    """What recording cost the host at least between these moments where the step does not show it, in ns.

    A host that is ahead of its device is slowed by a recorder as well, while the step stays as long. Each row is taken
    to cost what the cheapest ones did where it showed. Zero where the host may have set the pace, or without a device.
    """
    if place.device is None or place.idle.total_ns > MOST_IDLE_OF_DEVICE_PACED * place.window.total_ns:
        return np.zeros(starts.size, np.int64)
    points, before = _edges(place)
    rows = before[np.searchsorted(points, ends)] - before[np.searchsorted(points, starts)]
    return (rows * LEAST_EVENT_NS_WITH_DEVICE).astype(np.int64)


# --- what recording cost ---------------------------------------------------------------------------------------------


@once_per_run
def _model(run: Run) -> _Model | None:
    timed = _timed_ns(run)
    if not run.whole_steps or any(place.rank not in timed for place in run.places):
        return None
    measured_ns = run.average([timed[place.rank] for place in run.places])
    without_flushes_ns = run.step_ns - run.mean(lambda place: place.idle_causes["profiler"].total_ns)
    longer_ns = run.average([max(_typical_ns(place) - timed[place.rank], 0) for place in run.places])
    unrecorded_ns = max(without_flushes_ns - longer_ns, min(measured_ns, without_flushes_ns))
    # A host that is slower while its device computes leaves it idle later: all of its rows are the cause of idle time.
    rows = run.average([_events(place, place.window) / place.units for place in run.places])
    on_the_way = run.average([_events(place, _stretchable(place)) / place.units for place in run.places])
    has_device = run.places[0].device is not None
    most_ns = min(MOST_EVENT_NS_WITH_DEVICE if has_device else MOST_EVENT_NS, _most_by_ops_ns(run))
    by_others_ns = 0.0 if has_device else min(longer_ns, cpu_use.most_contended_share(run) * run.step_ns)
    explained_ns = min(longer_ns - by_others_ns, rows * most_ns) if on_the_way else 0.0
    # The thread that trains slept for so long of a step while it ran no op.
    asleep_share = np.nan_to_num(cpu_use.sleeping_share(run))
    sleeping_ns = min(asleep_share * run.step_ns, _idle_ns(run), unrecorded_ns)
    unchanged_ns = (
        without_flushes_ns - run.mean(lambda place: _stretchable(place).total_ns) if has_device else sleeping_ns
    )
    rest_ns = without_flushes_ns - explained_ns - unchanged_ns
    return _Model(
        measured_ns=round(measured_ns),
        unrecorded_ns=round(unrecorded_ns),
        events_per_step=rows,
        event_ns=explained_ns / rows if rows else 0.0,
        cost_ns=explained_ns / on_the_way if on_the_way else 0.0,
        pace=min(max(unrecorded_ns - unchanged_ns, 0.0) / rest_ns, 1.0) if rest_ns > 0 else 1.0,
        sleeping=sleeping_ns / max(_idle_ns(run), sleeping_ns, 1.0),
        by_others_ns=round(by_others_ns),
    )


def _timed_ns(run: Run) -> dict[int, float]:
    """By rank: a step while nothing was recorded, in ns; without what comes between steps, where that is known."""
    timed = {
        rank: float(ns)
        for rank, ns in run.timeline.unrecorded_step_ns.items()
        if not _is_from_queue(run, run.timeline.unrecorded_steps.get(rank, 0))
    }
    for found in partitions(run.timeline):
        between = {kind: each for kind, each in found.known.items() if PAUSES[kind].rule}
        if between and found.run.rank in timed:
            plain_ns = plain_mean_ns(found.lengths, between, found.usual_ns)
            timed[found.run.rank] = min(timed[found.run.rank], plain_ns)
    return timed


def _is_from_queue(run: Run, steps: int) -> bool:
    """Were so few steps timed that a queue may have fed them which is empty in the long run?

    Workers go on while a program starts, and while a trace is written.
    """
    loader = max(run.timeline.loaders, key=lambda each: each.batches, default=None)
    if loader is None or not steps or run.mean(lambda place: place.idle_ns("input_wait")) < _WAITS * run.step_ns:
        return False
    return steps * max(loader.batches_per_step, 1.0) <= _WITHOUT_WAIT * loader.workers


def _most_by_ops_ns(run: Run) -> float:
    """The most ns that a row may cost so that each op of the training thread keeps the time of the shortest op there
    is; infinite where a device computes.
    """
    places = [place for place in run.places if place.device is None]
    parts = [_part(name) for name in PARTS if PARTS[name].waits_for != "profiler"]
    limits = [np.inf]
    for place in places:
        # When the driving threads' ops began that no other op called.
        starts = np.sort(outermost(driving_rows(place.timeline, place.rank, "ops")).start_ns)
        # Ops that begin shortly behind one another, with the Python between them: calling them is all that happens.
        close = np.diff(starts) < _CLOSE_NS
        one_behind_the_other = Intervals.of(starts[:-1][close], starts[1:][close]) & place.window
        for when in (*(part(place) for part in parts), one_behind_the_other):
            rows = _events(place, when)
            if rows and when.total_ns >= _NOTABLE_PART * place.window.total_ns:
                inside = int(when.overlap_ns(starts, starts + 1).sum())
                limits.append(max(when.total_ns - inside * SHORTEST_OP_NS, 0) / rows)
    return min(limits)


def _idle_ns(run: Run) -> float:
    """The training thread's time of a step outside of ops, in ns; 0 where a device computes."""
    return run.mean(lambda place: _stretchable_idle(place).total_ns if place.device is None else 0)


def _typical_ns(place: Place) -> float:
    """The mean of the undisturbed steady steps without the profiler's flushes, in ns; also where only some steps are
    analysed. Counted as the agent counts unrecorded ones (`perfdoctor_agent.pace`): as many of each kind as there are.
    """
    steps = place.steps
    first, last = steps.steady or (steps.first, steps.last)
    starts, ends = steps.bounds[first:last], steps.bounds[first + 1 : last + 1]
    steps_ns = ends - starts - place.idle_causes["profiler"].overlap_ns(starts, ends)
    first_quartile, third_quartile = np.quantile(steps_ns, _QUARTILES)
    kept = steps_ns <= third_quartile + _FENCE * (third_quartile - first_quartile)
    return float(steps_ns[kept].mean())


def _stretchable(place: Place) -> Intervals:
    """What gets longer where the host does: the training thread's whole time, or the time when a device is idle."""
    return place.window if place.device is None else _stretchable_idle(place)


def _stretchable_idle(place: Place) -> Intervals:
    return place.idle - place.idle_causes["profiler"]


def _events(place: Place, when: Intervals) -> float:
    """How many rows of the driving threads cost time in `when`; a row counts half at its start and half at its end."""
    points, before = _edges(place)
    return float((before[np.searchsorted(points, when.ends)] - before[np.searchsorted(points, when.starts)]).sum())


@once_per_place
def _edges(place: Place) -> tuple[Ints, Floats]:
    """When rows cost time, ascending, and what those before cost, in rows; one number more than there are moments.

    Half of an edge lies inside of the row, and half outside.
    """
    moments, weights = [], []
    for signal, weight in _WEIGHTS.items():
        rows = driving_rows(place.timeline, place.rank, signal)
        for edge in (rows.start_ns - 1, rows.start_ns, rows.end_ns - 1, rows.end_ns):
            moments.append(edge)
            weights.append(np.full(edge.size, weight / 4))
    at, each = np.concatenate(moments), np.concatenate(weights)
    order = np.argsort(at, kind="stable")
    return at[order], np.concatenate([[0.0], np.cumsum(each[order])])


# --- parts of the step -----------------------------------------------------------------------------------------------


def _part(name: str) -> Part:
    if name in IDLE_CAUSES:
        return lambda place: place.idle_causes[name]
    return {
        "compute": lambda place: place.compute,
        "exposed_communication": lambda place: place.exposed_communication,
        "exposed_copy": lambda place: place.exposed_copies,
    }[name]


def _recorded_ns(run: Run, part: Part) -> float:
    """How long this part of a step was in the recording, in ns."""
    return run.average([part(place).total_ns / place.units for place in run.places])


def _unrecorded_ns(run: Run, name: str) -> float:
    """How long this part of a step is without a recorder, in ns; the profiler then has nothing to flush."""
    return 0.0 if PARTS[name].waits_for == "profiler" else _without_rows_ns(run, _part(name))


def _without_rows_ns(run: Run, part: Part) -> float:
    """How long this part of a step is without the cost of recorded rows and at the machine's own pace, in ns."""
    model = _model(run)
    assert model is not None
    left = []
    for place in run.places:
        when = part(place)
        longer = when & _stretchable(place)
        cost_ns = model.cost_ns * _events(place, longer)
        sleeping_ns = model.sleeping * (when & place.idle).total_ns
        awake_ns = max(longer.total_ns - cost_ns - sleeping_ns, 0.0)
        left.append((when.total_ns - longer.total_ns + sleeping_ns + awake_ns * model.pace) / place.units)
    return float(np.mean(left))


@once_per_run
def stack_cost(run: Run) -> tuple[int, float]:
    """Python frames recorded on the driving threads, and the share of the window that recording them took (0-1).

    These are of the place with the largest share; (0, 0.0) without stacks.
    """

    def of_place(place: Place) -> tuple[int, float]:
        frames = driving_rows(place.timeline, place.rank, "functions")
        count = int(np.count_nonzero(place.window.overlap_ns(frames.start_ns, frames.start_ns + 1)))
        return count, count * FRAME_NS / max(place.window_ns, 1)

    return max(map(of_place, run.places), key=lambda each: each[1], default=(0, 0.0))
