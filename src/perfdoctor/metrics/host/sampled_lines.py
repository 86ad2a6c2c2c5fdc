"""Which lines of the user's own code was a process in, as its sampled stacks show?

Samples are instants: one counts for a stretch of time if it lies in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.host_rows import sampled_instants
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import Frame, Ints, Text, Timeline
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.names import python_code

_PARTS = regex(r"^(.*)\((\d{1,9})\): (.*)$", 16)  # DOTALL: a function may have any name
_LINE_NUMBER = regex(r"\(\d+\)(?=: )")
#: A function that is slow in several lines comes before a single line elsewhere if they cost twice as much together:
#: a `main` that calls everything has many lines with few samples each, and none of them is what to look at.
_TWO_LINES = 2
#: A line that runs a library's loop is in all stacks. One in fifty may be misread: py-spy does not stop the program.
_LOOP_SHARE = 0.98
#: What a loop over steps does, each by the functions of PyTorch that show it.
_OF_LOOP = (python_code.NEXT_BATCH, python_code.BACKWARD, python_code.UPDATE)


class SampledLine(Struct, frozen=True):
    """`name`: `file(line): function`. `share`: of all samples of the same time; `is_worker`: of a loader's worker."""

    name: str
    samples: int
    share: float
    is_worker: bool = False

    @property
    def place(self) -> tuple[str, int, str]:
        """File, line, function."""
        return place_of(self.name)

    def text(self, timeline: Timeline) -> tuple[str, ...]:
        """The line's statement when it was recorded; empty where it was not kept."""
        return tuple(timeline.code.get(self.name.rpartition("): ")[0] + ")", ()))


def place_of(name: str) -> tuple[str, int, str]:
    """File, line, function of `file(line): function`; a recording may hold other names, too."""
    found = _PARTS.match(name)
    return (found[1], int(found[2]), found[3]) if found else (name, 0, "")


def on_clock(timeline: Timeline) -> bool:
    """Are there samples at known times of the recording?"""
    return bool(timeline["stack_samples"]["is_on_clock"].any())


def has_workers(timeline: Timeline) -> bool:
    """Were workers of a loader sampled?"""
    return bool(timeline["stack_samples"]["is_worker"].any())


class _Samples(Struct, frozen=True):
    """One sample a row: its instant, the name of its line, "" without one, and its stack, a line a frame."""

    at_ns: Ints
    line: Text
    stack: Text


@once_per_timeline
def _of_training(timeline: Timeline, rank: int) -> _Samples:
    """Samples of the thread that trains.

    Where its own code waits for another thread, as of a loader of its own, that one's line stands for it, below its
    stack.
    """
    rows = timeline["stack_samples"].of(rank=rank)
    rows = rows.take(~rows["is_worker"] & rows["is_on_clock"])
    others = rows.take(
        ~rows["is_main"] & ~rows.name.equals("") & ~rows.text("stack").where(python_code.waits_for_thread)
    )
    samples = _samples(rows.take(rows["is_main"]))
    return _with_waited_for(samples, others) if len(others) else samples


def _with_waited_for(samples: _Samples, others: Frame) -> _Samples:
    """The samples with the lines of the threads that are waited for.

    `others`: rows of other threads with own code that do not wait themselves. Of several at once none is known to be
    the one that is waited for.
    """
    waits = np.flatnonzero(samples.stack.where(python_code.waits_for_thread))
    at_ns = samples.at_ns[waits]
    found, threads = np.full(waits.size, -1), np.zeros(waits.size, np.int64)
    for thread in np.unique(others["thread"]).tolist():
        rows = np.flatnonzero(others["thread"] == thread)
        rows = rows[np.argsort(others.start_ns[rows], kind="stable")]
        row = rows[np.maximum(np.searchsorted(others.start_ns[rows], at_ns, "right") - 1, 0)]
        covers = (others.start_ns[row] <= at_ns) & (at_ns < others.end_ns[row])
        found, threads = np.where(covers, row, found), threads + covers
    lines, stacks = list(samples.line), list(samples.stack)
    for sample, row in zip(waits[threads == 1].tolist(), found[threads == 1].tolist(), strict=True):
        lines[sample] = others.name[row]
        stacks[sample] += "\n" + others.text("stack")[row]
    return _Samples(samples.at_ns, Text.of(lines), Text.of(stacks))


@once_per_timeline
def _of_forward(timeline: Timeline, rank: int) -> _Samples:
    """Samples of the thread that trains, without those in which it waits for a backward pass that runs no own code."""
    rows = timeline["stack_samples"].of(rank=rank)
    rows = rows.take(~rows["is_worker"] & rows["is_main"] & rows["is_on_clock"])
    return _samples(rows.take(~rows.text("stack").where(_waits_for_backward)))


def _waits_for_backward(stack: str) -> bool:
    began = python_code.BACKWARD.search(stack)
    return began is not None and not any(map(python_code.is_user_function, stack[began.end() :].split("\n")))


@once_per_timeline
def _of_workers(timeline: Timeline, rank: int) -> _Samples:
    """Samples of the main threads of a loader's workers while they fetch."""
    rows = timeline["stack_samples"].of(rank=rank)
    return _samples(rows.take(rows["is_worker"] & rows["is_main"] & rows["is_on_clock"] & ~rows.name.equals("")))


def _samples(rows: Frame) -> _Samples:
    row, at_ns = sampled_instants(rows)
    return _Samples(at_ns, rows.name.take(row), rows.text("stack").take(row))


def of_training(timeline: Timeline, when: Iterable[tuple[int, Intervals]]) -> list[SampledLine]:
    """Lines of the training thread in these times of each rank, costliest first; empty without samples."""
    return _counted(((_of_training(timeline, rank), times) for rank, times in when), is_worker=False)


def of_ops(timeline: Timeline, when: Iterable[tuple[int, Intervals]]) -> list[SampledLine]:
    """Lines of the training thread that asked for the ops of these times.

    The ops of a backward pass follow from the forward's: where lines of a forward pass were sampled, they alone count.
    """
    when = list(when)
    forward = _counted(((_of_forward(timeline, rank), times) for rank, times in when), is_worker=False)
    return forward or of_training(timeline, when)


def loops(timeline: Timeline, lines: Iterable[SampledLine]) -> list[SampledLine]:
    """Those of `lines` that run the whole loop of a library, as `trainer.fit(…)`: they do not say what is slow in it.

    Such a line is in all stacks of the training thread, whatever part of the step they show.
    """
    stacks = Counter(stack for rank in timeline.ranks for stack in _of_training(timeline, rank).stack)
    return [line for line in lines if not line.is_worker and _is_loop(line, stacks)]


def _is_loop(line: SampledLine, stacks: Counter[str]) -> bool:
    frame = "\n" + line.name.rpartition("): ")[0] + "): "
    inside = {stack: count for stack, count in stacks.items() if frame in "\n" + stack}
    kinds = sum(any(each.search(stack) for stack in inside) for each in _OF_LOOP)
    return kinds > 1 and sum(inside.values()) >= _LOOP_SHARE * stacks.total()


def of_workers(timeline: Timeline, when: Iterable[tuple[int, Intervals]]) -> list[SampledLine]:
    """Lines of the loader's workers, while they prepared batches in these times."""
    return _counted(((_of_workers(timeline, rank), times) for rank, times in when), is_worker=True)


def of_profile(timeline: Timeline, *, is_worker: bool) -> list[SampledLine]:
    """Lines of samples whose times are not known: of the main threads of trainings, or of their loaders' workers."""
    rows = timeline["stack_samples"]
    rows = rows.take(~rows["is_on_clock"] & rows["is_main"] & (rows["is_worker"] == is_worker))
    samples = rows.name.sums(rows["samples"])
    return _costliest(Counter({name: int(n) for name, _, n in samples if n}), is_worker=is_worker)


def stacks_of_training(timeline: Timeline, when: Iterable[tuple[int, Intervals]]) -> Counter[str]:
    """How many samples of the training thread in these times of each rank show which stack, a line a frame."""
    return _stacks(((_of_training(timeline, rank), times) for rank, times in when))


def stacks_of_workers(timeline: Timeline, when: Iterable[tuple[int, Intervals]]) -> Counter[str]:
    """How many samples of the loader's workers in these times show which stack, from what they fetch with on."""
    found: Counter[str] = Counter()
    for stack, count in _stacks(((_of_workers(timeline, rank), times) for rank, times in when)).items():
        frames = stack.split("\n")
        first = next((place for place, name in enumerate(frames) if python_code.FETCH.search(name)), 0)
        found["\n".join(frames[first:])] += count
    return found


def stacks_of_profile(timeline: Timeline) -> Counter[str]:
    """How many samples of trainings' main threads whose times are not known show which stack."""
    rows = timeline["stack_samples"]
    rows = rows.take(~rows["is_on_clock"] & rows["is_main"] & ~rows["is_worker"])
    found: Counter[str] = Counter()
    for stack, count in zip(rows.text("stack"), rows["samples"].tolist(), strict=True):
        found[stack] += count
    return found


def _stacks(parts: Iterable[tuple[_Samples, Intervals]]) -> Counter[str]:
    return Counter(
        stack for samples, times in parts for stack in samples.stack.take(np.flatnonzero(times.covers(samples.at_ns)))
    )


def _counted(parts: Iterable[tuple[_Samples, Intervals]], *, is_worker: bool) -> list[SampledLine]:
    inside = (samples.line.take(np.flatnonzero(times.covers(samples.at_ns))) for samples, times in parts)
    counts = Counter(name for lines in inside for name in lines)
    return _costliest(counts, is_worker=is_worker)


def _costliest(counts: Counter[str], *, is_worker: bool) -> list[SampledLine]:
    """The lines, costliest first. Samples of one function in several lines count together."""
    functions: Counter[str] = Counter()
    of_line = {name: _LINE_NUMBER.sub("", name, count=1) for name in counts}
    for name, count in counts.items():
        functions[of_line[name]] += count
    together = {name: functions[of_line[name]] for name in counts}
    order = sorted(
        (-max(count, together[name] / _TWO_LINES), -together[name], -count, name)
        for name, count in counts.items()
        if name
    )
    return [SampledLine(name, -count, -count / counts.total(), is_worker) for _, _, count, name in order]
