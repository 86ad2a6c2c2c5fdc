"""How long did the whole run take, in its steps and in each kind of work between them?

    start │ step │ step │ step + evaluation │ step │ … recorded … │ step │ step + evaluation + checkpoint │ … │ end

A length is the time from the end of one step to the end of the next, so what lies between two steps makes one of them
longer. Samples of the training thread show which ones, and what it is. What comes at every k-th step is worth what
these steps take beyond the usual one, exactly; what comes unevenly, its share of the samples. Work of a kind that each
step has is a part of the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.whole_run.stacks import Stack, common, kinds_of_samples, loop_functions, read_stacks
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.columns import Ints, Mask
from perfdoctor.model.run import Run
from perfdoctor.model.whole_run import WholeRun
from perfdoctor.patterns import regex
from perfdoctor.records.findings import CodeLine
from perfdoctor.records.run_time import RunTime
from perfdoctor.vocabulary.pauses import CHECKPOINT, LEARNING_RATE_SEARCH, LOGGING, PAUSES, UNKNOWN

#: Fewer samples of a kind are no proof of it.
FEWEST_SAMPLES = 5
#: Of the steps in which a kind was seen, so many must fit its period: some are seen one step late.
_FITS_SHARE = 0.9
#: Of the steps that fit a period, so many must have been seen: else any two of a long run had a period.
_SEEN_SHARE = 0.3
#: A period that chance gives more often is none.
_CHANCE = 0.001
#: Of a period two must lie in the run.
_TWICE = 2
#: What lies in more steps than this share is a part of the step.
_MOST_STEPS_SHARE = 0.5
#: Where each step holds something, the shorter quarter has least of it.
_SHORTER = 0.25
#: A number of samples is known to three standard deviations (Poisson), and samples come so unevenly.
_DEVIATIONS, _UNEVEN = 3.0, 0.1
#: In so many times the usual step something else was done, too, if other steps differ by less.
_LONG = 1.15
#: Of the time of a line, so much must lie in long steps: else each step has it.
_IN_LONG_STEPS = 0.9
#: Files of a checkpoint hold at least half of the parameters' bytes (in half precision); fewer bytes are a log.
_OF_PARAMETERS, _LOG_BYTES = 0.5, 100_000
_FRAME = regex(r"^(.*)\((\d+)\): (.*)$")


class _Steps(Struct, frozen=True):
    """Lengths between the ends of the loop's own steps. `usable`: not made longer by recording. `length_of`: of each
    sample, -1 where it lies in none that is usable. `inner`: whether other steps ended within.
    """

    begins_ns: Ints
    lengths_ns: Ints
    usable: Mask
    length_of: Ints
    new_epoch: Mask
    loop: frozenset[str]
    searching: frozenset[str]


class _Kind(Struct, frozen=True):
    """What is known of one kind. `in_lengths`: the numbers of lengths that hold it; `every`: 0 if not periodic."""

    samples: Ints
    in_lengths: Ints
    every: int


@once_per_run
def run_time(run: Run) -> RunTime | None:
    """The partition of the run of the rank that does most between its steps; None where no whole run was noted."""
    found = [partition(each) for each in run.timeline.whole_runs]
    return max(found, key=lambda each: sum(each.share.values()), default=None)


def partition(run: WholeRun) -> RunTime:
    """The partition of one process's run."""
    found = _found(run)
    tail = _tail_ns(run, found.stacks, found.known)
    return _as_record(run, found.steps, found.stacks, found.known, found.took_ns, tail, found.usual_ns)


def recorded_with_pauses(run: WholeRun, least_share: float) -> tuple[Ints, Ints]:
    """When the recorded steps were that hold something else besides, as its period says.

    Args:
        run: The run of one process.
        least_share: Of the training's time, what a kind takes at least to count, from 0 to 1.

    Returns:
        Begins and ends of these steps, in ns since 1970.
    """
    found = _found(run)
    steps, total_ns = found.steps, int(found.steps.lengths_ns[found.steps.usable].sum())
    holds = np.zeros(steps.usable.size, dtype=bool)
    for kind, each in found.known.items():
        if each.every and found.took_ns[kind] >= least_share * total_ns:
            holds[int(each.in_lengths[0]) % each.every :: each.every] = True
    rows = np.flatnonzero(holds & ~steps.usable)
    return steps.begins_ns[rows] + run.start_unix_ns, (steps.begins_ns + steps.lengths_ns)[rows] + run.start_unix_ns


class _Found(Struct, frozen=True):
    """What is known of a run: the kinds between its steps, how long each took, and a usual step, in ns."""

    steps: _Steps
    stacks: Sequence[Stack]
    known: Mapping[str, _Kind]
    took_ns: Mapping[str, int]
    usual_ns: int


def _found(run: WholeRun) -> _Found:
    steps = _steps(run)
    stacks = read_stacks(run, steps.loop, steps.searching)
    kinds = np.array(kinds_of_samples(run, stacks, steps.length_of, steps.new_epoch), dtype=object)
    seen = {kind: _seen(kind, kinds, steps) for kind in PAUSES if kind != UNKNOWN}
    known = {kind: each for kind, each in seen.items() if each is not None}
    usual_ns = _usual_ns(steps, known)
    known = {kind: each for kind, each in known.items() if _is_between(each, steps, usual_ns)}
    usual_ns = _usual_ns(steps, known)
    more = _unnamed(run, stacks, kinds, steps, known, usual_ns)
    known = {**known, **more}
    usual_ns = _usual_ns(steps, known)
    return _Found(steps, stacks, known, _took_ns(steps, known, usual_ns), usual_ns)


# --- steps ---


def _steps(run: WholeRun) -> _Steps:
    """The lengths between the steps that the loop asks for; others that end between them are part of a length."""
    callers = [_function(line) for line in run.site_callers]
    functions = [f"{_function(line)} by {caller}" for line, caller in zip(run.site_lines, callers, strict=True)]
    asked = np.array([functions[site] if site >= 0 else "" for site in run.sites.tolist()], dtype=object)
    main = _outermost(run, asked, dict(zip(functions, callers, strict=True)))
    rows = np.flatnonzero(asked == main)
    # Steps of a first phase, in another function, are steps as well: only what lies between others is not.
    inside = np.arange(asked.size)[rows[0] : rows[-1] + 1]
    kept = np.concatenate([np.arange(rows[0]), inside[asked[inside] == main], np.arange(rows[-1] + 1, asked.size)])
    others = _alone_in(set(asked[inside][asked[inside] != main].tolist()), main)
    ends = run.ends_ns[kept]
    usable = np.ones(ends.size - 1, dtype=bool)
    for first, behind in run.windows:
        usable[np.searchsorted(kept, first) : np.searchsorted(kept, behind)] = False
    length_of = np.searchsorted(ends, run.at_ns, side="right") - 1
    is_in = (length_of >= 0) & (length_of < usable.size)
    length_of = np.where(is_in & usable[np.clip(length_of, 0, usable.size - 1)], length_of, -1)
    epochs = np.searchsorted(ends, run.iterators[:, 0], side="right") - 1
    new_epoch = np.zeros(usable.size, dtype=bool)
    new_epoch[epochs[(epochs >= 0) & (epochs < usable.size)]] = True
    sites = [line for line, function in zip(run.site_lines, functions, strict=True) if function == main]
    apart = frozenset(others)
    loop = loop_functions(run, sites, apart)
    return _Steps(ends[:-1], np.diff(ends), usable, length_of, new_epoch, loop, apart - loop)


def _outermost(run: WholeRun, asked: Ints, callers: Mapping[str, str]) -> str:
    """Who asks for the steps of the loop: the most frequent, unless its steps are asked for inside of another's."""
    names, counts = np.unique(asked.astype(str), return_counts=True)
    often = [str(name) for name in names[np.argsort(-counts)] if name in callers]
    functions = [_function(frame) for frame in run.frames]
    on_stacks = [[functions[frame] for frame in stack] for stack in run.stacks]
    main = often[0] if often else ""
    for other in often[1:]:
        inner, outer = callers[main], callers[other]
        if inner != outer and any(inner in stack and outer in stack[stack.index(inner) + 1 :] for stack in on_stacks):
            main = other
    return main


def _alone_in(others: set[str], main: str) -> set[str]:
    """The functions that ask for other steps, or call those that do: what is not of the loop's own."""
    of_main = set(main.split(" by "))
    return {part for other in others for part in other.split(" by ")} - of_main


def _function(line: str) -> str:
    found = _FRAME.match(line)
    return f"{found[1]}: {found[3]}" if found else line


def common_text(values: Ints) -> str:
    """The most frequent of some texts."""
    texts, counts = np.unique(values.astype(str), return_counts=True)
    return str(texts[counts.argmax()])


# --- kinds ---


def _seen(kind: str, kinds: Ints, steps: _Steps) -> _Kind | None:
    """Where a kind was seen; None where too few samples show it."""
    samples = np.flatnonzero((kinds == kind) & (steps.length_of >= 0))
    if samples.size < FEWEST_SAMPLES:
        return None
    return _periodic(samples, steps)


def _periodic(samples: Ints, steps: _Steps) -> _Kind:
    numbers = np.unique(steps.length_of[samples])
    every, rest = period(numbers, steps.usable.size)
    if every > 1:
        fitting = np.arange(numbers[0], numbers[-1] + 1)
        numbers = fitting[(fitting % every == rest) & steps.usable[fitting]]
    return _Kind(samples, numbers, every)


def period(numbers: Ints, count: int) -> tuple[int, int]:
    """The longest period of steps that these numbers fit, and their remainder; (0, 0) where they fit none, or all.

    Args:
        numbers: The numbers of steps in which something was seen, ascending; it may have been missed in others.
        count: How many steps there are.

    Returns:
        The period, of at least 2 steps, and the remainder of the numbers.
    """
    if numbers.size < 2:
        return 0, 0
    for every in range(count // _TWICE, 1, -1):
        rests, counts = np.unique(numbers % every, return_counts=True)
        best = int(counts.argmax())
        if counts[best] < max(2, _FITS_SHARE * numbers.size):
            continue
        there = (int(numbers[-1]) - int(numbers[0])) // every + 1
        if counts[best] >= _SEEN_SHARE * there or _by_chance(every, int(counts[best])) < _CHANCE:
            return every, int(rests[best])
    return 0, 0


def _by_chance(every: int, fitting: int) -> float:
    """How likely so many numbers leave the same remainder for this period, or for any longer one, by chance.

    Of one period it is every ** -(fitting - 1); their sum is bounded by the integral.
    """
    if fitting <= _TWICE:
        return 1.0
    return min(math.pow(every, 1.0 - fitting) * (1 + every / (fitting - 2.0)), 1.0)


def _usual_ns(steps: _Steps, known: Mapping[str, _Kind]) -> int:
    """The usual step: the median of those in which nothing else was seen, or of the shorter half of all."""
    plain = steps.usable.copy()
    for each in known.values():
        if each.every or each.in_lengths.size < _MOST_STEPS_SHARE * plain.sum():
            plain[each.in_lengths] = False
    if plain.sum() >= FEWEST_SAMPLES:
        return int(np.median(steps.lengths_ns[plain]))
    return int(np.quantile(steps.lengths_ns[steps.usable], _SHORTER))


def _is_between(each: _Kind, steps: _Steps, usual_ns: int) -> bool:
    """Does it lie between steps, and not in each of them?"""
    if each.every:
        return True
    numbers = steps.length_of[each.samples]
    in_long = steps.lengths_ns[numbers] > _LONG * usual_ns
    few = np.unique(numbers).size <= _MOST_STEPS_SHARE * steps.usable.sum()
    return bool(few and in_long.mean() >= _IN_LONG_STEPS)


def _unnamed(
    run: WholeRun, stacks: Sequence[Stack], kinds: Ints, steps: _Steps, known: Mapping[str, _Kind], usual_ns: int
) -> dict[str, _Kind]:
    """Kinds that no name shows: code that runs in long steps alone. What writes files is a checkpoint or a log."""
    plain = steps.usable.copy()
    for each in known.values():
        plain[each.in_lengths] = False
    long = plain & (steps.lengths_ns > _LONG * usual_ns)
    is_placed = (steps.length_of >= 0) & (kinds == "")
    rows = np.flatnonzero(is_placed)
    numbers: dict[tuple[int, int], int] = {}
    of_stack = [numbers.setdefault(each.place, len(numbers)) for each in stacks]
    places = np.array(of_stack, dtype=np.int64)[run.stack[rows]]
    is_long = long[steps.length_of[rows]]
    kept: list[Ints] = []
    asked = np.unique(places)
    for place in asked.tolist():
        of_place = places == place
        if of_place.sum() >= FEWEST_SAMPLES and (
            is_long[of_place].mean() >= _IN_LONG_STEPS or _repeats(steps.length_of[rows[of_place]], steps, asked.size)
        ):
            kept.append(rows[of_place])
    if not kept:
        return {}
    samples = np.sort(np.concatenate(kept))
    trains = np.array([stacks[each].trains for each in run.stack[samples].tolist()])
    kind = LEARNING_RATE_SEARCH if trains.mean() >= _MOST_STEPS_SHARE else _by_files(run, samples, steps)
    found = _periodic(samples, steps)
    if kind in known:
        return {}
    return {kind: found} if _is_between(found, steps, usual_ns) else {}


def _repeats(length_of: Ints, steps: _Steps, places: int) -> bool:
    """Does something come every k steps, and surely not by chance, though these steps are hardly longer?

    `places`: of how many it is asked.
    """
    numbers = np.unique(length_of)
    every, rest = period(numbers, steps.usable.size)
    fitting = int((numbers % every == rest).sum()) if every else 0
    return bool(every) and _by_chance(every, fitting) < _CHANCE / places


def _by_files(run: WholeRun, samples: Ints, steps: _Steps) -> str:
    """What code is that writes so much in a step."""
    numbers = np.unique(steps.length_of[samples])
    written = []
    for number in numbers.tolist():
        rows = np.flatnonzero(steps.length_of == number)
        before = max(int(rows[0]) - 1, 0)
        after = min(int(rows[-1]) + 1, run.written_bytes.size - 1)
        written.append(int(run.written_bytes[after] - run.written_bytes[before]))
    usual = float(np.median(written)) if written else 0.0
    if usual >= max(_OF_PARAMETERS * run.parameter_bytes, _LOG_BYTES):
        return CHECKPOINT
    return LOGGING if usual >= _LOG_BYTES else UNKNOWN


# --- times ---


def _took_ns(steps: _Steps, known: Mapping[str, _Kind], usual_ns: int) -> dict[str, int]:
    """How long each kind took in the usable lengths.

    Of periodic kinds by least squares: the excess of a length over the usual one is the sum of what it holds. Of others
    by their share of the samples. No more than all excess is given to them.
    """
    total_ns = int(steps.lengths_ns[steps.usable].sum())
    placed = max(int((steps.length_of >= 0).sum()), 1)
    took = {kind: total_ns * each.samples.size / placed for kind, each in known.items()}
    periodic = [kind for kind, each in known.items() if each.every]
    if periodic:
        holds = np.zeros((steps.usable.size, len(periodic)))
        for column, kind in enumerate(periodic):
            holds[known[kind].in_lengths, column] = 1.0
        excess = (steps.lengths_ns - usual_ns).astype(float)
        for kind in set(known) - set(periodic):  # as known by samples
            rows = known[kind].in_lengths
            excess[rows] -= took[kind] / rows.size
        held = steps.usable & holds.any(axis=1)
        each_ns, *_ = np.linalg.lstsq(holds[held], excess[held], rcond=None)
        for column, kind in enumerate(periodic):
            took[kind] = _agreed(max(float(each_ns[column]), 0.0) * holds[held, column].sum(), took[kind], known[kind])
    scale = min(1.0, total_ns / max(sum(took.values()), 1.0))
    return {kind: int(ns * scale) for kind, ns in took.items()}


def _tail_ns(run: WholeRun, stacks: Sequence[Stack], known: Mapping[str, _Kind]) -> dict[str, int]:
    """What the loop still did behind its last step, of each kind that it did between steps, by the same lines."""
    behind = np.flatnonzero(run.at_ns >= run.ends_ns[-1])
    found = {}
    for kind, each in known.items():
        places = {stacks[one].place for one in np.unique(run.stack[each.samples]).tolist()}
        same = [row for row in behind.tolist() if stacks[run.stack[row]].place in places]
        if len(same) >= FEWEST_SAMPLES:
            found[kind] = int(run.at_ns[same[-1]] - run.at_ns[same[0]])
    return found


def _agreed(by_lengths_ns: float, by_samples_ns: float, kind: _Kind) -> float:
    """The exact one, where the samples do not contradict it: their number is known to its square root."""
    error = by_samples_ns * (_DEVIATIONS / np.sqrt(max(kind.samples.size, 1)) + _UNEVEN)
    return by_lengths_ns if abs(by_lengths_ns - by_samples_ns) <= error else by_samples_ns


# --- the record ---


def _as_record(
    run: WholeRun, steps: _Steps, stacks: Sequence[Stack], known: Mapping[str, _Kind], took: Mapping[str, int],
    tail: Mapping[str, int], usual_ns: int,
) -> RunTime:  # fmt: skip
    training_ns = int(steps.lengths_ns[steps.usable].sum()) + sum(tail.values())
    steps_ns = int(steps.lengths_ns[steps.usable].sum()) - sum(took.values())
    took = {kind: ns + tail.get(kind, 0) for kind, ns in took.items()}
    recorded = ~steps.usable
    recorded_steps_ns = min(usual_ns * int(recorded.sum()), int(steps.lengths_ns[recorded].sum()))
    first_ns, last_ns = int(run.ends_ns[0]), int(run.ends_ns[-1])
    before_ns = max(run.start_unix_ns - run.process_unix_ns, 0) if run.process_unix_ns else 0
    between = {
        **took,
        "start": before_ns + first_ns,
        "recording": int(steps.lengths_ns[recorded].sum()) - recorded_steps_ns,
        "end": run.end_ns - last_ns - sum(tail.values()),
    }
    steps_ns += recorded_steps_ns
    lines = {kind: _lines(run, each, stacks) for kind, each in known.items()}
    return RunTime(
        wall_ns=steps_ns + sum(between.values()),
        steps_ns=steps_ns,
        between_ns=between,
        every_steps={kind: each.every for kind, each in known.items() if each.every},
        share={kind: ns / max(training_ns, 1) for kind, ns in took.items()},
        count={kind: int(each.in_lengths.size) + (kind in tail) for kind, each in known.items()},
        lines={kind: line for kind, (line, _) in lines.items() if line is not None},
        callers={kind: caller for kind, (_, caller) in lines.items() if caller is not None},
        samples={kind: int(each.samples.size) for kind, each in known.items()},
        forward_share={
            kind: sum(stacks[one].forward for one in run.stack[each.samples].tolist()) / each.samples.size
            for kind, each in known.items()
        },
        rank=run.rank,
        steps=int(run.ends_ns.size),
        usual_step_ns=usual_ns,
    )


def _lines(run: WholeRun, kind: _Kind, stacks: Sequence[Stack]) -> tuple[CodeLine | None, CodeLine | None]:
    """The line of the function below the loop in which most samples are, and the line of the loop that calls it."""
    shown = [stacks[each] for each in run.stack[kind.samples].tolist()]
    below = [each.entry for each in shown if each.entry >= 0 and (each.entry in run.own or each.caller not in run.own)]
    callers = [each.caller for each in shown if each.caller >= 0]
    line = _line(run, below, len(shown)) if len(below) > len(callers) - len(below) else None
    caller = _line(run, callers, len(shown))
    return (line, caller) if line is not None else (caller, None)


def _line(run: WholeRun, frames: Sequence[int], of: int) -> CodeLine | None:
    """The most frequent line of the most frequent function; None below five samples."""
    if len(frames) < FEWEST_SAMPLES:
        return None
    functions = np.array([_function(run.frames[frame]) for frame in frames], dtype=object)
    inside = np.array(frames)[functions == common_text(functions)]
    frame, samples = common(inside)[0]
    found = _FRAME.match(run.frames[frame])
    if found is None:
        return None
    place = f"{found[1]}({found[2]})"
    return CodeLine(found[1], int(found[2]), found[3], samples, samples / of, tuple(run.code.get(place, ())))
