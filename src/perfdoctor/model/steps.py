"""Where does one training step end and the next begin?

Marks come from the host: `ProfilerStep#n`, the user's own ranges ("step 17"), `Optimizer.step`, XLA's executions of a
module; or, without any, from the device: optimizer kernels, or a sequence of kernels that repeats. The host may be
several steps ahead of the device, so a mark on the host does not cut the device's time: a step on the device runs from
the first work that the step launched to the first work that the next step launched, found by correlation.

```
several    host    │step 1       │step 2       │step 3          a step that has one before and one behind it holds the
           device       ▓▓▓▓▓▓▓▓    ▓▓▓▓▓▓▓▓    ▓▓▓▓▓▓▓▓         host's time in front of the next one's first work
                        │step 1     │step 2     │
one or two host    │step 1           ···│                       the only one is what its mark holds, and ends when
           device             ▓▓▓▓▓▓▓▓ │                        host and device are both through with it
                   │step 1             │
```
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.columns import distinct
from perfdoctor.model.device_work import DeviceWork
from perfdoctor.model.host_rows import on_busiest_thread
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.iterations import graph_starts, iteration_ranges
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Timeline
from perfdoctor.model.updates import most_regular
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.names import xla as xla_names
from perfdoctor.vocabulary.names.kernels import family

FoundBy = Literal[
    "profiler-step", "user-range", "optimizer-hook", "optimizer-kernels", "xla-module", "periodicity", "none"
]
Confidence = Literal["high", "medium", "low"]

_NUMBER = regex(r"\d+")
#: The last digits of a number that are read: so many fit into an int64.
_DIGITS = 18
#: Of the numbers beside a step's own, a loss has a point, and may have a sign and an exponent.
_VALUE = regex(r"(?<![\w.])-?\d+\.\d+(e[+-]?\d+)?|\d+")

_NEVER = np.iinfo(np.int64).max

#: Fewer repetitions than this are no rhythm.
_FEWEST_STEPS = 3
#: A run without step markers is taken as steps only if they fill most of it: a range that marks a detail does not.
_LEAST_COVERAGE = 0.5
#: A leading step this much longer than nine of ten later ones is warm-up (allocation, autotuning, compilation). One
#: this much shorter than they are, and than its own step on the host, had been queued: the device caught up.
_WARM_UP_FACTOR = 1.5
#: Marks that are less than this share of a step apart follow each other at once.
_NO_PAUSE = 0.01
#: A repeating kernel sequence shorter than this is a loop inside a step (a layer, a micro-batch), not a step.
_SHORTEST_PERIOD_KERNELS = 16
#: Two periods count as the same work when this share of their kernels agrees, position by position.
_SAME_WORK_SHARE = 0.9


class Marks(Struct, frozen=True):
    """One rank's step marks on the host's clock: step i runs from `starts[i]` to `starts[i + 1]`.

    `ends[i]` is where the range that marks step i ended. The time from there to the next start is between steps.
    """

    found_by: FoundBy
    confidence: Confidence
    process: int
    thread: int
    starts: Ints
    ends: Ints


class Steps(Struct, frozen=True):
    """The steps of one (rank, device) on the device's clock.

    `bounds` has one entry more than there are steps. Steps `[first, last)` are in steady state and used; the others
    were left out: warm-up at the front, partial ones at the edges (`partial` counts those without a clean end).
    """

    found_by: FoundBy
    confidence: Confidence
    bounds: Ints
    first: int
    last: int
    partial: int
    #: The same edges by the first work on the stream that has most: a batch that is copied ahead, on another stream,
    #: comes whenever the host does, and would make even steps look uneven. None where they are the same.
    on_main_stream: Ints | None = None
    #: How long each step is, where the time up to the next one is not its own: the executions of a range.
    lengths_ns: Ints | None = None
    #: The steady steps `[first, last)` of which some were chosen for analysis; None where all are.
    steady: tuple[int, int] | None = None
    #: Where there are too few to spare the first and the last: when the host began each, and ended the last one.
    #: Their bounds reach as far. None where the device's time alone bounds them.
    on_host: Ints | None = None

    @property
    def even_bounds(self) -> Ints:
        """One edge more than steps are used: where to cut in order to compare steps with each other."""
        bounds = self.bounds if self.on_main_stream is None else self.on_main_stream
        return bounds[self.first : self.last + 1]

    @property
    def used_bounds(self) -> Ints:
        """When each step that is used begins, and when the last one ends, in ns."""
        return self.bounds[self.first : self.last + 1]

    @property
    def host_bounds(self) -> Ints | None:
        """When the host began each step that is used, and ended the last; None where the device bounds them alone."""
        return None if self.on_host is None else self.on_host[self.first : self.last + 1]

    @property
    def count(self) -> int:
        return max(self.bounds.size - 1, 0) + self.partial

    @property
    def used(self) -> int:
        """How many steps are analysed; 0 where none were found."""
        return self.last - self.first

    @property
    def durations_ns(self) -> Ints:
        """How long each of the steps used is, in ns: int64, one a step."""
        every = np.diff(self.bounds) if self.lengths_ns is None else self.lengths_ns
        return every[self.first : self.last]

    @property
    def ends_ns(self) -> Ints:
        """When each step ended, used or not; it began at its entry of `bounds`."""
        return self.bounds[1:] if self.lengths_ns is None else self.bounds[:-1] + self.lengths_ns

    @property
    def warm_up(self) -> int:
        """How many leading steps were left out."""
        return self.first if self.steady is None else self.steady[0]


NO_STEPS = Steps("none", "low", np.empty(0, np.int64), 0, 0, 0)


@once_per_timeline
def host_marks(timeline: Timeline, rank: int) -> Marks | None:
    """The best step marks that one rank's host recorded, or None."""
    ranges, ops = timeline.ranges.of(rank=rank), timeline.ops.of(rank=rank)
    own = ranges.take(ranges.name.equals(torch_names.OWN_STEP))
    if len(own) and timeline.steps_marked_by != "range":  # else the recorder's marks were made by these ranges
        return _marks(own, "user-range", "high")
    named = ranges.named(torch_names.PROFILER_STEP)
    if len(named):
        return _marks(named, "profiler-step", "high")
    if found := min(_families(ranges), key=lambda found: found[0], default=None):
        (has_no_word, _, _), rows = found
        return _marks(rows, "user-range", "medium" if has_no_word else "high")
    for frame in (ranges, ops):
        updates = frame.named(torch_names.OPTIMIZER_STEP)
        if len(updates) >= _FEWEST_STEPS:
            calls = timeline.calls.of(rank=rank)
            updates = most_regular(updates, calls.named(cuda_names.LAUNCH) if len(calls) else ops)
        if len(updates) >= _FEWEST_STEPS:  # a step begins where the optimizer's update of the one before it ended
            return replace(_marks(updates, "optimizer-hook", "high"), starts=updates.end_ns, ends=updates.end_ns)
    iterations = iteration_ranges(ranges)
    return _xla_marks(ranges) if iterations is None else _marks(iterations, "user-range", "medium")


def _xla_marks(ranges: Frame) -> Marks | None:
    """The executions of the XLA module that is one step: jit's of a function that people call so, else the longest.

    A step may be several modules; whichever comes once in each marks it. Where one process drives several GPUs, each
    has a thread that executes the module for it: one of them marks the steps of all.
    """
    modules = ranges.named(xla_names.MODULE)
    of_modules = (modules.take(modules.name.equals(name)) for name in dict.fromkeys(modules.name))
    found = [rows for rows in map(on_busiest_thread, of_modules) if len(rows) >= _FEWEST_STEPS]
    if not found:
        return None
    step = max(found, key=lambda rows: (_is_step_module(rows.name[0]), int(rows.duration_ns.sum())))
    return _marks(step, "xla-module", "high" if _is_step_module(step.name[0]) else "medium")


def _is_step_module(name: str) -> bool:
    module = xla_names.MODULE.search(name)
    return module is not None and xla_names.STEP_MODULE.search(module[1]) is not None


def _marks(rows: Frame, found_by: FoundBy, confidence: Confidence) -> Marks:
    return Marks(
        found_by, confidence, int(rows["process"][0]), int(rows["thread"][0]), rows.start_ns.copy(), rows.end_ns.copy()
    )


def _families(ranges: Frame) -> Iterator[tuple[tuple[bool, float, int], Frame]]:
    """Ranges that differ only in a running number, or carry a step's name, with their rank (lowest is best)."""
    stems: dict[str, list[int]] = {}
    no_step = ranges.name.matches(torch_names.NOT_A_STEP) | ranges.name.matches(xla_names.RANGE)
    for code in distinct(ranges.name.codes[~no_step]).tolist():
        name = ranges.name.values[code]
        if torch_names.STEP_NUMBER.search(name) or len(_NUMBER.findall(name)) <= 1:
            stems.setdefault(_VALUE.sub("#", name), []).append(code)
    span = int(ranges.end_ns.max() - ranges.start_ns.min()) if len(ranges) else 0
    times = np.bincount(ranges.name.codes, minlength=len(ranges.name.values))
    for stem, codes in stems.items():
        has_word = bool(torch_names.STEP_WORD.search(stem))
        if times[codes].sum() < _FEWEST_STEPS or not (has_word or "#" in stem):
            continue
        rows = ranges.take(np.isin(ranges.name.codes, codes))
        if not _one_after_another(rows, "#" in stem):
            continue
        coverage = float(rows.start_ns[-1] - rows.start_ns[0]) / max(span, 1)
        inside = float(rows.duration_ns.sum()) / max(span, 1)
        if has_word or (coverage >= _LEAST_COVERAGE and inside >= _LEAST_COVERAGE):
            # A range inside of a step (a micro-batch) fills as much of the run at most, and comes more often.
            yield (not has_word, -round(inside, 2), len(rows)), rows


def _one_after_another(rows: Frame, numbered: bool) -> bool:
    """Are the rows on one thread, without overlap, and, where `numbered`, do their numbers count up evenly?"""
    one_thread = np.unique(rows["thread"]).size == 1 and np.unique(rows["process"]).size == 1
    if not one_thread or (rows.start_ns[1:] < rows.end_ns[:-1]).any():
        return False
    if not numbered:
        return True
    numbers = [_running_number(name) for name in rows.name]
    # A step of the next epoch may begin to count anew.
    strides = [now - last for (epoch, last), (next_epoch, now) in pairwise(numbers) if epoch == next_epoch]
    if not strides:
        return False
    values, counts = np.unique(strides, return_counts=True)
    return bool(values[counts.argmax()] > 0 and counts.max() >= _SAME_WORK_SHARE * len(strides))


def _running_number(name: str) -> tuple[list[str], int]:
    """The number of a step in the name of its range, and the numbers in front of it: an epoch's."""
    if found := torch_names.STEP_NUMBER.search(name):
        return _NUMBER.findall(name[: found.start(1)]), int(found[1][-_DIGITS:])
    return [], int(_NUMBER.findall(name)[0][-_DIGITS:])


def device_steps(timeline: Timeline, work: DeviceWork, marks: Marks | None, kernels: Frame) -> Steps:
    """The steps of one device: from the host's marks where it launched work, else from its own kernels."""
    if marks is not None:
        steps = _launched_steps(timeline.calls, work, marks)
        if steps.used:
            return steps
    if by_kernels := _optimizer_kernel_steps(kernels) or _periodic_steps(kernels, work):
        return by_kernels
    graphs = graph_starts(work, timeline.calls)  # of replayed CUDA graphs nothing else names the steps
    return _steady("periodicity", "low", graphs, 2) if graphs.size > _FEWEST_STEPS else NO_STEPS


def _launched_steps(calls: Frame, work: DeviceWork, marks: Marks) -> Steps:
    launched = work.launch != UNKNOWN
    if not launched.any():
        return NO_STEPS
    rows = work.launch[launched]
    own = (calls["process"][rows] == marks.process) & (calls["thread"][rows] == marks.thread)
    use = own if own.any() else np.ones(rows.size, dtype=bool)
    at, start, end = calls.start_ns[rows][use], work.start_ns[launched][use], work.end_ns[launched][use]
    step = np.searchsorted(marks.starts, at, side="right") - 1
    if marks.found_by != "optimizer-hook":  # work launched after the last range belongs to no step
        step = np.where(at >= marks.ends[-1], marks.starts.size, step)
    first = _earliest(start, step, marks.starts.size)
    seen = np.flatnonzero(first != _NEVER)
    if seen.size == 0:
        return NO_STEPS
    if seen.size < _FEWEST_STEPS and marks.found_by != "optimizer-hook":
        return _held_to_host(work, marks, seen, first[seen], int(end[step == seen[-1]].max()))
    stream = work.stream[launched][use]
    streams, counts = np.unique(stream, return_counts=True)
    busiest = stream == streams[counts.argmax()]
    main = _earliest(start[busiest], step[busiest], marks.starts.size)[seen]
    bounds, on_main = first[seen], np.where(main == _NEVER, first[seen], main)
    on_host = np.append(marks.starts, marks.ends[-1])
    if edge := _end_of_last(marks, seen, bounds, step):
        of_last = step == seen[-1]
        # The next step begins on the streams on which others began, once these are free; the main one may be behind.
        begins = np.isin(stream, stream[start == first[np.clip(step, 0, first.size - 1)]])
        edge = int(end[of_last & begins].max(initial=edge))
        main_edge = int(end[of_last & busiest].max(initial=edge))
        seen, bounds, on_main = (
            np.append(seen, marks.starts.size),
            np.append(bounds, edge),
            np.append(on_main, main_edge),
        )
    bounds = np.maximum.accumulate(bounds)
    queued = drained(np.diff(bounds), on_host[seen[:-1] + 1] - on_host[seen[:-1]])
    steps = _steady(marks.found_by, marks.confidence, bounds, 0 if edge else 1, queued)
    return replace(steps, on_main_stream=np.maximum.accumulate(on_main))


def _end_of_last(marks: Marks, seen: Ints, first: Ints, step: Ints) -> int:
    """Where a step behind the last marked one would begin; 0 if the mark does not say, or the step is not there whole.

    It was where steps follow each other without a pause, and it launched about as much as the others. The next one's
    first work would come when the host has begun that step, and made ready for it as quickly as ever before. Where
    enough others have a next one behind them, that guess is not needed.
    """
    if seen.size > _FEWEST_STEPS or marks.found_by == "optimizer-hook" or seen[-1] != marks.starts.size - 1:
        return 0
    launched = np.bincount(step[step >= 0], minlength=marks.starts.size)[seen]
    lengths = np.diff(marks.starts)
    pauses = marks.starts[1:] - marks.ends[:-1]
    if pauses.max() > _NO_PAUSE * np.median(lengths) or launched[-1] < _SAME_WORK_SHARE * np.median(launched[:-1]):
        return 0
    return int(marks.ends[-1] + (first - marks.starts[seen]).min())


def _held_to_host(work: DeviceWork, marks: Marks, seen: Ints, first: Ints, last_end: int) -> Steps:
    """One step or two, `seen` of all marks: too few to spare the first, whose host time no other holds, or the last.

    Each begins when the host began it, or later, when the device was through with what came before. Of a single one
    all work is its own, also what has no call. `first`: when the first work of each began.
    """
    starts, end = marks.starts[seen], max(last_end, int(marks.ends[seen[-1]]))
    if seen.size == 1:
        begin, end = np.minimum(starts, work.start_ns[0]), max(end, int(work.end_ns.max()))
    else:
        free = Intervals.of(work.start_ns, work.end_ns).free_since(first)
        begin = np.maximum.accumulate(np.minimum(np.maximum(free, starts), first))
    bounds = np.append(begin, max(end, int(begin[-1])))
    on_host = np.append(starts, marks.ends[seen[-1]])
    return Steps(marks.found_by, marks.confidence, bounds, 0, seen.size, 0, on_host=on_host)


def _earliest(start: Ints, step: Ints, count: int) -> Ints:
    """The earliest start of each step's work; _NEVER where a step has none. Steps outside [0, count) are left out."""
    first = np.full(count, _NEVER)
    inside = (step >= 0) & (step < count)
    np.minimum.at(first, step[inside], start[inside])
    return first


def _steady(found_by: FoundBy, confidence: Confidence, bounds: Ints, partial: int, least: int = 0) -> Steps:
    """The steps between `bounds` without the first `least`, and without more that are warm-up or compilation."""
    durations = np.diff(bounds)
    return Steps(found_by, confidence, bounds, least + warm_up(durations[least:]), durations.size, partial)


def warm_up(durations: Ints) -> int:
    """How many of the first steps are much longer than the later ones. `durations`: of each step, in ns."""
    first = 0
    while durations.size - first > _FEWEST_STEPS:
        later = durations[first + 1 :]
        if durations[first] <= _WARM_UP_FACTOR * np.quantile(later, 0.9):
            break
        first += 1
    return first


def drained(durations: Ints, on_host: Ints) -> int:
    """How many of the first `durations` (device, ns) are much shorter than `on_host` and than the later ones.

    They had been queued when the recording began: the device runs them behind each other, and its queue drains.
    """
    first = 0
    while durations.size - first > 1:
        usual = min(float(on_host[first]), float(np.quantile(durations[first + 1 :], 0.1)))
        if _WARM_UP_FACTOR * durations[first] >= usual:
            break
        first += 1
    return first


def host_steps(marks: Marks | None) -> Steps:
    """The steps of a run without a GPU, which are those of the host's `marks`."""
    if marks is None:
        return NO_STEPS
    bounds = marks.starts if marks.found_by == "optimizer-hook" else np.append(marks.starts, marks.ends[-1])
    return _steady(marks.found_by, marks.confidence, bounds, 0) if bounds.size > 1 else NO_STEPS


def _optimizer_kernel_steps(kernels: Frame) -> Steps | None:
    """The steps that end with the optimizer's kernels; None where these come too seldom or unevenly."""
    is_update = kernels.name.has(family, "optimizer")
    if is_update.sum() < _FEWEST_STEPS:
        return None
    # Kernels may slip in between updates (gradient scaling): a run ends where many others follow.
    rows = np.flatnonzero(is_update)
    breaks = np.flatnonzero(np.diff(rows) > _SHORTEST_PERIOD_KERNELS)
    after = rows[breaks] + 1
    if after.size < _FEWEST_STEPS:
        return None
    lengths = np.diff(after)
    if np.std(lengths) > (1 - _SAME_WORK_SHARE) * np.mean(lengths):
        return None
    return _steady("optimizer-kernels", "medium", kernels.start_ns[after], 2)


def _periodic_steps(kernels: Frame, work: DeviceWork) -> Steps | None:
    """The steps by a sequence of `kernels` that repeats, if each repetition moves a batch or a result; else None.

    Layers repeat inside a step as well; what distinguishes a step from them is that it exchanges data with the host.
    Many small kernels may repeat beside few long ones: what repeats must hold most of the kernels' time.
    """
    bounds = next((bounds for bounds, share in _repetitions(kernels, work) if share >= _LEAST_COVERAGE), None)
    return None if bounds is None else _steady("periodicity", "low", bounds, 2)


def minor_repetition(kernels: Frame, work: DeviceWork) -> tuple[Ints, float] | None:
    """When each repetition of a sequence of `kernels` begins, and the share of their time, below half, that they hold.

    None where nothing repeats, or most of it does: that is a step.
    """
    return next((found for found in _repetitions(kernels, work) if found[1] < _LEAST_COVERAGE), None)


def _repetitions(kernels: Frame, work: DeviceWork) -> Iterator[tuple[Ints, float]]:
    """Bounds of each sequence that repeats with a batch or a result each time, and its share of the kernels' time."""
    codes, ran_ns = kernels.name.codes, np.append(0, np.cumsum(kernels.duration_ns))
    for anchor in _anchors(codes):
        period = int(anchor[1] - anchor[0])
        whole = anchor[anchor + period <= codes.size]
        same = np.mean([np.mean(codes[at : at + period] == codes[whole[0] : whole[0] + period]) for at in whole])
        bounds = kernels.start_ns[anchor]
        with_copy = np.unique(np.searchsorted(bounds, work.start_ns[work.is_h2d | work.is_blocking_copy], side="right"))
        if same >= _SAME_WORK_SHARE and with_copy.size >= _SAME_WORK_SHARE * (bounds.size - 1):
            yield bounds, float(ran_ns[anchor[-1]] - ran_ns[anchor[0]]) / max(float(ran_ns[-1]), 1.0)


def _anchors(codes: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Iterator[Ints]:
    """Positions of kernels that come again at even distances over most of the run, longest period first."""
    if codes.size < _FEWEST_STEPS * _SHORTEST_PERIOD_KERNELS:
        return
    found = []
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        gaps = np.diff(rows)
        covers = rows[-1] - rows[0] >= _LEAST_COVERAGE * codes.size
        if covers and rows.size > _FEWEST_STEPS and gaps.min() >= _SHORTEST_PERIOD_KERNELS and np.ptp(gaps) == 0:
            found.append(rows.astype(np.int64))
    yield from sorted(found, key=lambda rows: -int(rows[1] - rows[0]))[:8]
