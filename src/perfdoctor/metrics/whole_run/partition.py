"""How long did the whole run take, in its steps and in each kind of work between them?

    start │ step │ step │ step + evaluation │ step │ … recorded … │ step │ step + evaluation + checkpoint │ … │ end

A length is the time from the end of one step to the end of the next, so what lies between two steps makes one of them
longer. Samples of the training thread show which ones, and what it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.whole_run.kinds import FEWEST, Kind, first_times_of, kinds_between, times_of
from perfdoctor.metrics.whole_run.lengths import Lengths, lengths_of
from perfdoctor.metrics.whole_run.stacks import Frames, Stack, frames_of, kinds_of_samples, read_stacks
from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.columns import Ints
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline
from perfdoctor.model.whole_run import WholeRun
from perfdoctor.patterns import regex
from perfdoctor.records.findings import CodeLine
from perfdoctor.records.run_time import RunTime
from perfdoctor.vocabulary.pauses import PAUSES

_FRAME = regex(r"^(.*)\((\d+)\): (.*)$")


class Partition(Struct, frozen=True):
    """What is known of one process's run.

    `known`: the kinds between its steps; `took_ns`: how long each took in the usable lengths, without what only the
    first time took, all of which is `first_ns`; `recorded_ns`: in those that recording made longer, judged by the
    others; `tail_ns`: behind the last step that was noted. `usual_ns`: a step without them. `noted_until_ns`: where
    steps begin that were not noted, or the run's end.
    """

    run: WholeRun
    frames: Frames
    lengths: Lengths
    stacks: Sequence[Stack]
    known: Mapping[str, Kind]
    took_ns: Mapping[str, int]
    first_ns: int
    recorded_ns: Mapping[str, int]
    tail_ns: Mapping[str, int]
    usual_ns: int
    noted_until_ns: int


def run_time(run: Run) -> RunTime | None:
    """Return the partition of the rank that does most between its steps; None where no whole run is known."""
    found = [record_of(each) for each in partitions(run.timeline)]
    return max(found, key=lambda each: sum(each.share.values()), default=None)


@once_per_timeline
def partitions(timeline: Timeline) -> tuple[Partition, ...]:
    """Return what is known of each process's run in which a step was not recorded."""
    found = (partition(each) for each in timeline.whole_runs)
    return tuple(each for each in found if each is not None)


def partition(run: WholeRun) -> Partition | None:
    """Return what is known of a run; None where recording made every step longer."""
    frames = frames_of(run)
    lengths = lengths_of(run, frames)
    if not lengths.usable.any():
        return None
    stacks = read_stacks(run, frames, lengths.loop, lengths.apart)
    shown = kinds_of_samples(run, frames, stacks, lengths.length_of, lengths.new_epoch)
    known, usual_ns = kinds_between(run, lengths, stacks, shown)
    all_ns = times_of(lengths, known, usual_ns)
    first = first_times_of(lengths, known, all_ns, usual_ns)
    took_ns = {kind: ns - first.get(kind, 0) for kind, ns in all_ns.items()}
    places = {kind: {stacks[one].place for one in run.stack[each.samples].tolist()} for kind, each in known.items()}
    until_ns = _noted_until_ns(run, stacks, frozenset().union(*places.values()), usual_ns)
    tail_ns = _tail_ns(run, stacks, places, until_ns)
    recorded_ns = _recorded_ns(lengths, known, took_ns)
    first_ns = sum(first.values())
    return Partition(run, frames, lengths, stacks, known, took_ns, first_ns, recorded_ns, tail_ns, usual_ns, until_ns)


def recorded_with_pauses(found: Partition, least_share: float) -> tuple[Ints, Ints]:
    """Return when the recorded steps were that hold something else besides, as its period says.

    What no rule judges by the whole run, as compilation, stays: rules of steps do.

    Args:
        found: What is known of the run.
        least_share: The least share of the training's time that a kind takes, from 0 to 1.

    Returns:
        Begins and ends of these steps, in ns since 1970.
    """
    lengths = found.lengths
    rows = np.flatnonzero(~lengths.usable)
    holds = np.zeros(rows.size, dtype=bool)
    for kind, each in found.known.items():
        if PAUSES[kind].rule and found.took_ns[kind] >= least_share * lengths.usable_ns:
            holds |= each.is_in(rows)
    begins = lengths.begins_ns[rows[holds]] + found.run.start_unix_ns
    return begins, begins + lengths.lengths_ns[rows[holds]]


def _recorded_ns(lengths: Lengths, known: Mapping[str, Kind], took_ns: Mapping[str, int]) -> dict[str, int]:
    """How long kinds took in lengths that recording made longer: each time, or step, as long as elsewhere."""
    rows = np.flatnonzero(~lengths.usable)
    found = {}
    for kind, each in known.items():
        here, elsewhere = rows.size, lengths.count - rows.size
        if each.every:
            here, elsewhere = int(each.is_in(rows).sum()), each.in_lengths.size
        if here:
            found[kind] = took_ns[kind] * here // elsewhere
    return found


def _noted_until_ns(
    run: WholeRun, stacks: Sequence[Stack], between: AbstractSet[tuple[int, int]], usual_ns: int
) -> int:
    """Where steps begin that were not noted, as those of another optimizer; the run's end without any.

    A second optimizer may still update in the last step that was noted, and a trial training come behind it: `between`
    has the places of what comes between steps.
    """
    trains = np.array([each.trains and each.place not in between for each in stacks], dtype=bool)[run.stack]
    rows = np.flatnonzero(trains & (run.at_ns > run.ends_ns[-1] + usual_ns))
    return int(run.at_ns[rows[0]]) if rows.size >= FEWEST else run.end_ns


def _tail_ns(
    run: WholeRun, stacks: Sequence[Stack], places: Mapping[str, AbstractSet[tuple[int, int]]], until_ns: int
) -> dict[str, int]:
    """What the loop still did behind its last step, of each kind that it did between steps, by the same lines."""
    behind = np.flatnonzero((run.at_ns >= run.ends_ns[-1]) & (run.at_ns < until_ns))
    found = {}
    for kind, of_kind in places.items():
        same = [row for row in behind.tolist() if stacks[run.stack[row]].place in of_kind]
        if len(same) >= FEWEST:
            found[kind] = int(run.at_ns[same[-1]] - run.at_ns[same[0]])
    return found


# --- the record ---


def record_of(found: Partition) -> RunTime:
    """Return the partition as a report shows it."""
    run, lengths, known = found.run, found.lengths, found.known
    recorded_ns = int(lengths.lengths_ns[~lengths.usable].sum())
    # Of what recorded steps took, the time of as many usual ones, and of what comes in them, is not the recorder's.
    left_ns, recorded = recorded_ns, {}
    for kind, ns in found.recorded_ns.items():
        recorded[kind] = min(ns, left_ns)
        left_ns -= recorded[kind]
    recorded_steps_ns = min(found.usual_ns * int((~lengths.usable).sum()), left_ns)
    in_usable = {kind: found.took_ns[kind] + found.tail_ns.get(kind, 0) for kind in known}
    before_ns = max(run.start_unix_ns - run.process_unix_ns, 0) if run.process_unix_ns else 0
    between = {
        **{kind: ns + recorded.get(kind, 0) for kind, ns in in_usable.items()},
        "start": before_ns + int(run.ends_ns[0]) + found.first_ns,
        "recording": left_ns - recorded_steps_ns,
        "end": found.noted_until_ns - int(run.ends_ns[-1]) - sum(found.tail_ns.values()),
        "unnoted": run.end_ns - found.noted_until_ns,
    }
    steps_ns = lengths.usable_ns - sum(found.took_ns.values()) - found.first_ns + recorded_steps_ns
    training_ns = steps_ns + sum(between[kind] for kind in known)
    lines = {kind: _lines(found, each) for kind, each in known.items()}
    rows = np.flatnonzero(~lengths.usable)
    return RunTime(
        wall_ns=steps_ns + sum(between.values()),
        steps_ns=steps_ns,
        between_ns=between,
        every_steps={kind: each.every for kind, each in known.items() if each.every},
        share={kind: between[kind] / max(training_ns, 1) for kind in known},
        count={
            kind: int(each.in_lengths.size + each.is_in(rows).sum()) + (kind in found.tail_ns)
            for kind, each in known.items()
        },
        lines={kind: line for kind, (line, _) in lines.items() if line is not None},
        callers={kind: caller for kind, (_, caller) in lines.items() if caller is not None},
        samples={kind: int(each.samples.size) for kind, each in known.items()},
        forward_share={
            kind: float(np.mean([found.stacks[one].forward for one in run.stack[each.samples].tolist()]))
            for kind, each in known.items()
        },
        rank=run.rank,
        steps=int(run.ends_ns.size),
        usual_step_ns=found.usual_ns,
    )


def _lines(found: Partition, kind: Kind) -> tuple[CodeLine | None, CodeLine | None]:
    """The line of the function below the loop in which most samples are, and the line of the loop that calls it."""
    own = found.run.own
    shown = [found.stacks[each] for each in found.run.stack[kind.samples].tolist()]
    # A library's frame below a line of the user's own says less than that line.
    below = [each.entry for each in shown if each.entry >= 0 and (each.entry in own or each.caller not in own)]
    line = _line(found, below, len(shown)) if len(below) > len(shown) - len(below) else None
    caller = _line(found, [each.caller for each in shown if each.caller >= 0], len(shown))
    return (line, caller) if line is not None else (caller, None)


def _line(found: Partition, frames: Sequence[int], of: int) -> CodeLine | None:
    """The most frequent line of the most frequent function; None below five samples."""
    if len(frames) < FEWEST:
        return None
    functions = [found.frames.functions[frame] for frame in frames]
    (most, _), *_ = Counter(functions).most_common(1)
    inside = [frame for frame, function in zip(frames, functions, strict=True) if function == most]
    (frame, samples), *_ = Counter(inside).most_common(1)
    named = _FRAME.match(found.run.frames[frame])
    if named is None:
        return None
    text = tuple(found.run.code.get(f"{named[1]}({named[2]})", ()))
    return CodeLine(named[1], int(named[2]), named[3], samples, samples / of, text)
