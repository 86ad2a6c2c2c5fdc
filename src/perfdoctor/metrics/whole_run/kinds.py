"""Which kinds of work lie between the steps of a run, in which steps, and how long did each take?

What comes at every k-th step is worth what these steps take beyond the usual one, exactly; what comes unevenly, its
share of the samples. Work of a kind that each step has is a part of the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.whole_run.lengths import Lengths
from perfdoctor.metrics.whole_run.periods import CHANCE, by_chance, period
from perfdoctor.metrics.whole_run.stacks import Stack, function_of
from perfdoctor.model.columns import Floats, Ints, Mask
from perfdoctor.model.whole_run import WholeRun
from perfdoctor.vocabulary.pauses import CHECKPOINT, LEARNING_RATE_SEARCH, LOGGING, PAUSES, UNKNOWN

#: Fewer samples of a kind are no proof of it, and fewer steps have no usual length.
FEWEST = 5
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
#: What is so many times as long as the usual step is more than a disturbed one.
_FAR_LONGER = 4
#: And of all samples in other steps at most so many may be of it.
_SHARE_OF_EACH = 0.1
#: What took so many times as long as later on took it because it was the first time.
_FIRST_TIMES = 3
#: A trial training spends at least this share of its time on gradients and updates; the rest is forward.
_TRAINS_SHARE = 0.2
#: And does so many steps at a time; a penalty has a backward pass inside of it and one of its own.
_SEVERAL = 3
#: Files of a checkpoint hold at least half of the parameters' bytes (in half precision); fewer bytes are a log.
_OF_PARAMETERS, _LOG_BYTES = 0.5, 100_000


class Kind(Struct, frozen=True):
    """What is known of one kind. `samples`: the rows that show it; `in_lengths`: the numbers of the usable lengths that
    hold it; `every`: how many steps lie from one to the next, 0 if it comes unevenly; `rest`: the remainder then.
    """

    samples: Ints
    in_lengths: Ints
    every: int = 0
    rest: int = 0

    def is_in(self, numbers: Ints) -> Mask:
        """Return which of these lengths hold it, usable or not, by its period; none where it comes unevenly."""
        return (numbers % self.every == self.rest) if self.every else np.zeros(numbers.size, dtype=bool)


def kinds_between(
    run: WholeRun, lengths: Lengths, stacks: Sequence[Stack], shown: Sequence[str]
) -> tuple[dict[str, Kind], int]:
    """Return the kinds of work between steps by name, and the usual step in ns.

    Args:
        run: The run.
        lengths: Its lengths, of which one at least is usable.
        stacks: What its stacks show.
        shown: The kind that each sample shows, "" for none.
    """
    kinds = np.array(shown, dtype=object)
    seen = {kind: _seen(np.flatnonzero((kinds == kind) & (lengths.length_of >= 0)), lengths) for kind in PAUSES}
    known = {kind: each for kind, each in seen.items() if each is not None and kind != UNKNOWN}
    usual_ns = _usual_ns(lengths, known)
    known = {kind: each for kind, each in known.items() if _is_between(each, lengths, usual_ns)}
    usual_ns = _usual_ns(lengths, known)
    rows = np.flatnonzero((lengths.length_of >= 0) & (kinds == "") & ~_of_steps(run, stacks)[run.stack])
    more = _unnamed(run, stacks, rows, lengths, known, usual_ns)
    known = {**more, **known}
    return known, _usual_ns(lengths, known)


def _of_steps(run: WholeRun, stacks: Sequence[Stack]) -> Mask:
    """For each stack, whether it shows the step itself, which may take long now and then.

    That is what the loop's own lines train, or run a module for with gradients, and what else is done in such a line.
    """
    direct = [each.entry not in run.own for each in stacks]
    trains = [each.trains or (each.forward and not each.no_gradients) for each in stacks]
    lines = {each.caller for each, *both in zip(stacks, direct, trains, strict=True) if all(both)} - {-1}
    rows = zip(stacks, direct, trains, strict=True)
    return np.array([is_direct and (does or each.caller in lines) for each, is_direct, does in rows], dtype=bool)


def _seen(samples: Ints, lengths: Lengths) -> Kind | None:
    """The kind that these samples show; None where they are too few."""
    if samples.size < FEWEST:
        return None
    numbers = np.unique(lengths.length_of[samples])
    every, rest = period(numbers, lengths.count)
    if not every:
        return Kind(samples, numbers)
    whole = np.arange(numbers[0], numbers[-1] + 1)
    return Kind(samples, whole[(whole % every == rest) & lengths.usable[whole]], every, rest)


def _usual_ns(lengths: Lengths, known: Mapping[str, Kind]) -> int:
    """The usual step: the median of those in which nothing else was seen, or of the shorter half of all."""
    plain = lengths.usable.copy()
    for each in known.values():
        if each.every or each.in_lengths.size < _MOST_STEPS_SHARE * plain.sum():
            plain[each.in_lengths] = False
    if plain.sum() >= FEWEST:
        return int(np.median(lengths.lengths_ns[plain]))
    return int(np.quantile(lengths.lengths_ns[lengths.usable], _SHORTER))


def _is_between(each: Kind, lengths: Lengths, usual_ns: int) -> bool:
    """Does it lie between steps, and not in each of them?"""
    if each.every:
        return True
    numbers = lengths.length_of[each.samples]
    in_long = lengths.lengths_ns[numbers] > _LONG * usual_ns
    few = np.unique(numbers).size <= _MOST_STEPS_SHARE * lengths.usable.sum()
    return bool(few and in_long.mean() >= _IN_LONG_STEPS)


# --- what no name shows ---


def _unnamed(
    run: WholeRun, stacks: Sequence[Stack], rows: Ints, lengths: Lengths, known: Mapping[str, Kind], usual_ns: int
) -> dict[str, Kind]:
    """The kind of code that runs in long steps alone, or every k steps; `rows`: the samples that show no kind.

    What trains there several times is a trial training, what writes files a checkpoint or a log.
    """
    plain = lengths.usable.copy()
    for each in known.values():
        plain[each.in_lengths] = False
    long = plain & (lengths.lengths_ns > _LONG * usual_ns)
    is_long = long[lengths.length_of[rows]]
    in_short = int((plain & ~long)[lengths.length_of[lengths.length_of >= 0]].sum())
    numbers: dict[tuple[int, int], int] = {}
    places = np.array([numbers.setdefault(each.place, len(numbers)) for each in stacks], dtype=np.int64)[
        run.stack[rows]
    ]
    kept = np.zeros(rows.size, dtype=bool)
    asked = np.unique(places)
    for place in asked.tolist():
        of_place = places == place
        if of_place.sum() < FEWEST:
            continue
        # On a busy machine steps are long and short, and what each of them does lies mostly in the long ones.
        in_each = (of_place & ~is_long).sum() > _SHARE_OF_EACH * max(in_short, FEWEST)
        in_long = is_long[of_place].mean() >= _IN_LONG_STEPS and not in_each
        if in_long or _repeats(rows[of_place], lengths, asked.size):
            kept |= of_place
    found = _seen(_without_training(run, stacks, rows[kept], lengths), lengths)
    if found is None or not _is_between(found, lengths, usual_ns):
        return {}
    trains = np.array([stacks[each].trains for each in run.stack[found.samples].tolist()])
    is_training = trains.mean() >= _TRAINS_SHARE
    return {LEARNING_RATE_SEARCH if is_training else _by_files(run, found.samples, lengths): found}


def _without_training(run: WholeRun, stacks: Sequence[Stack], rows: Ints, lengths: Lengths) -> Ints:
    """The samples without those of functions that train now and then as a part of the training.

    So come a penalty on gradients every 16th step, or a generator's update. A trial training does several steps at a
    time, or calls the loop's functions again.
    """
    shown = [stacks[each] for each in run.stack[rows].tolist()]
    entries = [function_of(run.frames[each.entry]) if each.entry >= 0 else "" for each in shown]
    trains, function = np.array([each.trains for each in shown], dtype=bool), np.array(entries, dtype=object)
    kept = np.ones(rows.size, dtype=bool)
    for name in dict.fromkeys(entries):
        its = function == name
        if trains[its].mean() >= _TRAINS_SHARE and not _is_trial(run, stacks, rows[its], trains[its], lengths):
            kept &= ~its
    return rows[kept]


def _is_trial(run: WholeRun, stacks: Sequence[Stack], rows: Ints, trains: Mask, lengths: Lengths) -> bool:
    """Does a function that trains call the loop's functions again, or go forward and backward several times?"""
    for number in np.unique(run.stack[rows]).tolist():
        stack, entry = run.stacks[number], stacks[number].entry
        below = stack[: stack.index(entry)] if entry >= 0 else ()
        if any(function_of(run.frames[frame]) in lengths.loop for frame in below):
            return True
    numbers = lengths.length_of[rows]
    begins = trains & np.append(True, ~trains[:-1] | (np.diff(numbers) != 0))
    return float(np.median(np.bincount(numbers, weights=begins)[np.unique(numbers)])) >= _SEVERAL


def _repeats(samples: Ints, lengths: Lengths, places: int) -> bool:
    """Does something come every k steps, and surely not by chance, though these steps are hardly longer?

    `places`: of how many it is asked. Where all samples lie in such steps, they keep step with the training.
    """
    numbers = np.unique(lengths.length_of[samples])
    every, rest = period(numbers, lengths.count)
    if not every:
        return False
    everywhere = lengths.length_of[lengths.length_of >= 0] % every == rest
    fitting = int((numbers % every == rest).sum())
    return bool(everywhere.mean() < _IN_LONG_STEPS) and by_chance(every, fitting) < CHANCE / places


def _by_files(run: WholeRun, samples: Ints, lengths: Lengths) -> str:
    """The kind of code that writes so much in a step."""
    written = []
    for number in np.unique(lengths.length_of[samples]).tolist():
        rows = np.flatnonzero(lengths.length_of == number)
        before, after = max(int(rows[0]) - 1, 0), min(int(rows[-1]) + 1, run.written_bytes.size - 1)
        written.append(int(run.written_bytes[after] - run.written_bytes[before]))
    usual = float(np.median(written))
    if usual >= max(_OF_PARAMETERS * run.parameter_bytes, _LOG_BYTES):
        return CHECKPOINT
    return LOGGING if usual >= _LOG_BYTES else UNKNOWN


# --- times ---


def times_of(lengths: Lengths, known: Mapping[str, Kind], usual_ns: int) -> dict[str, int]:
    """Return how long each kind took in the usable lengths, in ns; no more than all of them together.

    Of periodic kinds by least squares: the excess of a length over the usual one is the sum of what it holds. Of others
    by their share of the samples.

    Args:
        lengths: The lengths of the run.
        known: The kinds between its steps.
        usual_ns: The usual step.
    """
    placed = max(int((lengths.length_of >= 0).sum()), 1)
    took = {kind: lengths.usable_ns * each.samples.size / placed for kind, each in known.items()}
    excess: Floats = lengths.lengths_ns.astype(np.float64) - plain_mean_ns(lengths, known, usual_ns)
    for kind, each in known.items():
        if not each.every:
            excess[each.in_lengths] -= took[kind] / each.in_lengths.size
    periodic = {kind: each for kind, each in known.items() if each.every}
    for kind, by_lengths_ns in _by_lengths(lengths, periodic, excess).items():
        took[kind] = _agreed(by_lengths_ns, took[kind], known[kind].samples.size)
    scale = min(1.0, lengths.usable_ns / max(sum(took.values()), 1.0))
    return {kind: int(ns * scale) for kind, ns in took.items()}


def plain_mean_ns(lengths: Lengths, known: Mapping[str, Kind], usual_ns: int) -> float:
    """Return the mean of steps in which nothing else was seen, in ns.

    Those that hold something are disturbed as often as they are. Far longer ones are left out, as they held something
    that no sample shows.

    Args:
        lengths: The lengths of the run.
        known: The kinds between its steps.
        usual_ns: The usual step.
    """
    plain = lengths.usable & (lengths.lengths_ns <= _FAR_LONGER * usual_ns)
    for each in known.values():
        plain[each.in_lengths] = False
    return float(lengths.lengths_ns[plain].mean()) if plain.sum() >= FEWEST else float(usual_ns)


def first_times_of(
    lengths: Lengths, known: Mapping[str, Kind], took_ns: Mapping[str, int], usual_ns: int
) -> dict[str, int]:
    """Return what kinds took more the first time than later on, in ns: a library is loaded, a cache is filled.

    Args:
        lengths: The lengths of the run.
        known: The kinds between its steps.
        took_ns: How long each took in all usable lengths.
        usual_ns: The usual step.
    """
    more = {}
    for kind, each in known.items():
        first_ns, *later_ns = np.maximum(lengths.lengths_ns[each.in_lengths] - usual_ns, 0).tolist()
        usual_later_ns = float(np.median(later_ns)) if later_ns else first_ns
        if first_ns > _FIRST_TIMES * usual_later_ns:
            more[kind] = int(took_ns[kind] * (first_ns - usual_later_ns) / (first_ns + sum(later_ns)))
    return more


def _by_lengths(lengths: Lengths, periodic: Mapping[str, Kind], excess: Floats) -> dict[str, float]:
    """How long each took, in ns. Of kinds that always come together the lengths say the sum, and samples the parts."""
    together: dict[bytes, list[str]] = {}
    for kind, each in periodic.items():
        together.setdefault(each.in_lengths.tobytes(), []).append(kind)
    if not together:
        return {}
    holds = np.zeros((lengths.count, len(together)))
    for column, kinds in enumerate(together.values()):
        holds[periodic[kinds[0]].in_lengths, column] = 1.0
    held = lengths.usable & holds.any(axis=1)
    each_ns, *_ = np.linalg.lstsq(holds[held], excess[held], rcond=None)
    sums = np.maximum(each_ns, 0.0) * holds[held].sum(axis=0)
    found = {}
    for kinds, sum_ns in zip(together.values(), sums.tolist(), strict=True):
        samples = sum(periodic[kind].samples.size for kind in kinds)
        found.update({kind: sum_ns * periodic[kind].samples.size / samples for kind in kinds})
    return found


def _agreed(by_lengths_ns: float, by_samples_ns: float, samples: int) -> float:
    """The exact one, where the samples do not contradict it: their number is known to its square root."""
    error = by_samples_ns * (_DEVIATIONS / np.sqrt(samples) + _UNEVEN)
    return by_lengths_ns if abs(by_lengths_ns - by_samples_ns) <= error else by_samples_ns
