"""How do Python stacks that were sampled from outside get onto the timeline of the recorded steps?

The sampler's clock is right to some milliseconds (recording/sampling/stacks.py). Backward passes, optimizer steps and
waits for batches are ranges in the recording and functions in the stacks: the times of the samples are shifted so that
most of these samples lie inside their ranges.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.host_rows import sampled_instants
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Timeline
from perfdoctor.readers import text_rows
from perfdoctor.readers.kineto.inflate import whole_text
from perfdoctor.vocabulary.names import loaders, python_code
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.names.python_code import is_user_function

_DAMAGED = (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, IndexError, AttributeError)
_MAIN_THREAD = "MainThread"
#: Functions of PyTorch whose whole time is a range of its profiler, and that range.
ANCHORS = (
    (python_code.BACKWARD, torch_names.BACKWARD),
    (python_code.UPDATE, torch_names.OPTIMIZER_STEP),
    (python_code.NEXT_BATCH, loaders.PYTORCH_NEXT),
)
#: How far the clock may be off: twice what was seen. The step is well below the distance of two samples.
_MOST_SHIFT_NS, _SHIFT_STEP_NS = 10_000_000, 250_000
#: Fewer samples inside anchors prove no shift.
_FEWEST_ANCHORED = 5


def read(file: Path, ranks: Mapping[int, int], epoch_ns: int) -> Frame:
    """The sampled stacks of one process. `ranks`: by training process; `epoch_ns`: when time 0 was, since 1970.

    Raises PerfdoctorError for a damaged file.
    """
    try:
        document = json.loads(whole_text(file.read_bytes()))
        return text_rows.frame("stack_samples", _rows(document, ranks, epoch_ns))
    except _DAMAGED as error:
        raise PerfdoctorError(
            f"the stacks in {file.name} cannot be read: {error}", do="Delete that file, or record again."
        ) from error


def _rows(document: Mapping[str, Any], ranks: Mapping[int, int], epoch_ns: int) -> Iterable[dict[str, object]]:
    frames, stacks, threads, hertz = (document[name] for name in ("frames", "stacks", "threads", "hertz"))
    samples, training = document["samples"], int(document["of"])
    is_ours = [python_code.OWN_AGENT.search(name) is not None for name in frames]
    named = [[frames[number] for number in stack if not is_ours[number]] for stack in stacks]
    texts = ["\n".join(stack) for stack in named]
    line = own_line_of_worker if document["is_worker"] is True else own_line
    is_own: Callable[[str], bool] = is_user_function
    if "own" in document:  # as it was recorded, by whole paths; else as far as a frame's name shows it
        is_own = frozenset(frames[number] for number in document["own"]).__contains__
    own = [line(stack, is_own) for stack in named]
    columns = [samples[name] for name in ("thread", "start_unix_ns", "end_unix_ns", "stack")]
    counts = samples.get("count") or [0] * len(columns[0])
    # Linux gives the first thread its process's number; Python names the one that imported `threading`.
    is_main = [bool(each["tid"] == document["pid"] or each["name"] == _MAIN_THREAD) for each in threads]
    for thread, start_ns, end_ns, stack, count in zip(*columns, counts, strict=True):
        yield {
            "rank": ranks.get(training, UNKNOWN), "process": int(document["pid"]),
            "thread": int(threads[thread]["tid"]), "is_main": is_main[thread],
            "start_ns": start_ns - epoch_ns, "end_ns": end_ns - epoch_ns, "name": own[stack], "stack": texts[stack],
            "training": training, "is_worker": document["is_worker"] is True, "is_on_clock": True,
            "samples": int(count) or max(1, round((end_ns - start_ns) * hertz / 1e9)),
        }  # fmt: skip


def own_line(stack: Sequence[str], is_own: Callable[[str], bool] = is_user_function) -> str:
    """The innermost line of the user's own in a stack; one of a comprehension belongs to the function around it."""
    own = [name for name in stack if is_own(name)]
    if not own:
        return ""
    place, _, _ = own[-1].partition(": ")
    around = next((name for name in reversed(own) if not python_code.COMPREHENSION.search(name)), own[-1])
    return f"{place}: {around.partition(': ')[2]}" if _file(around) == _file(own[-1]) else own[-1]


def _file(name: str) -> str:
    return name.partition(": ")[0].rpartition("(")[0]


def own_line_of_worker(stack: Sequence[str], is_own: Callable[[str], bool] = is_user_function) -> str:
    """The own line in what fetches a sample, else what that called first; "" where a worker fetches none.

    Outside of it are the lines of the training itself, which a forked worker has on its stack.
    """
    fetching = [place for place, name in enumerate(stack) if python_code.FETCH.search(name)]
    inside = stack[fetching[-1] + 1 :] if fetching else ()
    return own_line(inside, is_own) or next(iter(inside), "")


def source(file: Path) -> dict[str, list[str]]:
    """The text of lines, by `file(line)`, as it was kept; empty where it was not, or cannot be read."""
    try:
        kept = json.loads(whole_text(file.read_bytes()))["source"]
        return {str(name): [str(line) for line in text] for name, text in kept.items()}
    except _DAMAGED:
        return {}


# --- the clock ---


def of_training_thread(samples: Frame, ranges: Frame) -> Frame:
    """The samples, with `is_main` for the thread that trains: that of most backward passes, updates and batch waits.

    A program may train in a thread that it has started, while its main thread waits for that one to end.
    """
    marked = np.logical_or.reduce([ranges.name.matches(name) for _, name in ANCHORS])
    of_training = ~samples["is_worker"]
    threads = ranges["thread"][marked & np.isin(ranges["thread"], samples["thread"][of_training])]
    if not threads.size:
        return samples
    numbers, counts = np.unique(threads, return_counts=True)
    trains = samples["thread"] == numbers[counts.argmax()]
    return samples.with_columns(is_main=np.where(of_training, trains, samples["is_main"]))


class Anchor(Struct, frozen=True):
    """One kind of anchor: when samples showed its function, and when the recording shows its range."""

    at_ns: Ints
    ranges: Intervals


def anchors(samples: Frame, ranges: Frame, backward: Callable[[], Intervals] = Intervals.empty) -> list[Anchor]:
    """The kinds of anchors that samples and ranges both show. `backward`: when it ran, where no range says so."""
    row, at_ns = sampled_instants(samples)
    found = []
    for function, name in ANCHORS:
        when = ranges.named(name).intervals
        if name is torch_names.BACKWARD and not when:
            when = backward()
        shown = at_ns[samples.text("stack").matches(function)[row]]
        if when and shown.size:
            found.append(Anchor(shown, when))
    return found


def inside(anchored: Sequence[Anchor], shifts_ns: Ints) -> Ints:
    """How many of the anchored samples lie in the ranges of their kind, at each of these shifts."""
    counts = [each.ranges.covers(each.at_ns + shifts_ns[:, None]).sum(axis=1) for each in anchored]
    return np.asarray(np.sum(counts, axis=0))


def shift_ns(samples: Frame, ranges: Frame) -> int:
    """The shift by which most anchored samples lie inside their ranges, the middle one of equally good ones.

    It is 0 where too few samples are anchored.
    """
    found = anchors(samples, ranges)
    if sum(each.at_ns.size for each in found) < _FEWEST_ANCHORED:
        return 0
    shifts = np.arange(-_MOST_SHIFT_NS, _MOST_SHIFT_NS + 1, _SHIFT_STEP_NS)
    counts = inside(found, shifts)
    return int(np.median(shifts[counts == counts.max()]))


def join(timeline: Timeline, files: Sequence[Path], ranks: Mapping[int, int], epoch_ns: int) -> Timeline:
    """The timeline with the stacks of these files; a note for each that is damaged."""
    frames: dict[int, list[Frame]] = {}
    notes = []
    for file in files:
        try:
            rows = read(file, ranks, epoch_ns)
        except PerfdoctorError as error:
            notes.append(f"{error.what}. {error.do}")
            continue
        for rank in set(rows["rank"].tolist()) & set(timeline.ranks):
            frames.setdefault(rank, []).append(rows)
    found = []
    for rank, each in frames.items():
        ranges = timeline.ranges.of(rank=rank)
        samples = of_training_thread(Frame.join(each), ranges)
        found.append(samples.shifted(shift_ns(samples, ranges)))
    if found:
        timeline = timeline.with_frame("stack_samples", Frame.join(found))
        timeline = replace(timeline, code={line: text for file in files for line, text in source(file).items()})
    return timeline.with_notes(*notes)
