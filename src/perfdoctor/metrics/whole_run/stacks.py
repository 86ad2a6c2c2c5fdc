"""Which kind of work between steps does a sample of the training thread show, and in which line?

The functions on the stack when the optimizer is asked for its step are the loop: they are there in every step, whatever
they are called. What is called below them, and computes no gradients, may be something else than a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.model.columns import Ints, Mask
from perfdoctor.model.whole_run import WholeRun
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.names import python_code
from perfdoctor.vocabulary.pauses import EPOCH_CHANGE, EVALUATION, LEARNING_RATE_SEARCH, ROLLOUT, kind_of_frame

_TRAINS = (python_code.BACKWARD, python_code.UPDATE)
_LINE = regex(r"\(\d+\): ")
NO_KIND = ""


class Stack(Struct, frozen=True):
    """What one stack shows. `kind`: of work between steps, "" for none by its frames alone; `trains`: it computes
    gradients or updates parameters; `forward`, `loads`: it runs a module, waits for a loader; `no_gradients`: a line
    of it is inside of `torch.no_grad()`. `entry`: the outermost frame below the loop, of the user's own where there is
    one, and -1 for none; `caller`: the innermost frame of the loop.
    """

    kind: str
    trains: bool
    forward: bool
    loads: bool
    no_gradients: bool
    entry: int
    caller: int

    @property
    def place(self) -> tuple[int, int]:
        """What is compared: the frame below the loop, and the line of the loop that calls it."""
        return self.entry, self.caller


def function_of(frame: str) -> str:
    """`train.py: main` of the frame `train.py(12): main`."""
    return _LINE.sub(": ", frame, count=1)


def loop_functions(run: WholeRun, sites: Sequence[str], apart: frozenset[str]) -> frozenset[str]:
    """The functions that are on the stack when a step of the training is asked for, as `function_of` names them.

    `apart`: functions that ask for other steps.
    """
    asking = {function_of(site) for site in sites}
    functions = [function_of(frame) for frame in run.frames]
    found = set(asking)
    for stack in run.stacks:
        names = [functions[frame] for frame in stack]
        inner = next((at for at, name in enumerate(names) if name in asking), None)
        if inner is not None and apart.isdisjoint(names):
            found.update(names[inner:])
    return frozenset(found)


def read_stacks(run: WholeRun, loop: frozenset[str], searching: frozenset[str]) -> list[Stack]:
    """What each of the run's stacks shows. `loop`: its functions; `searching`: those that ask for other steps."""
    functions = [function_of(frame) for frame in run.frames]
    kinds = [kind_of_frame(frame) for frame in run.frames]
    return [_read(run, stack, functions, kinds, loop, searching) for stack in run.stacks]


def _read(
    run: WholeRun, stack: Sequence[int], functions: Sequence[str], kinds: Sequence[str], loop: frozenset[str],
    searching: frozenset[str],
) -> Stack:  # fmt: skip
    # Below the loop: all frames further in than the innermost one of a function of the loop.
    apart = [number for number, frame in enumerate(stack) if functions[frame] in searching]
    of_loop = (number for number, frame in enumerate(stack) if functions[frame] in loop)
    at = apart[-1] + 1 if apart else next(of_loop, len(stack))
    below = list(stack[:at])[::-1]  # outermost first
    frames = [run.frames[frame] for frame in stack]
    searches = any(functions[frame] in searching for frame in below)
    trains = not searches and any(pattern.search(frame) for frame in frames for pattern in _TRAINS)
    kind = next((kinds[frame] for frame in below if kinds[frame]), LEARNING_RATE_SEARCH if searches else NO_KIND)
    trains &= kind != LEARNING_RATE_SEARCH
    own = [frame for frame in below if frame in run.own]
    outer = own[0] if own else (below[0] if below else -1)
    return Stack(
        kind=NO_KIND if trains else kind,
        trains=trains,
        forward=any(python_code.FORWARD.search(frame) for frame in frames),
        loads=any(python_code.LOADER.search(frame) for frame in frames),
        no_gradients=any(frame in run.without_gradients for frame in stack),
        entry=outer,
        caller=stack[at] if at < len(stack) else -1,
    )


def kinds_of_samples(run: WholeRun, stacks: Sequence[Stack], length_of: Ints, new_epoch: Mask) -> list[str]:
    """The kind that each sample shows, "" for none. `length_of`: the step's number of each; `new_epoch`: by that
    number, whether an iterator over a loader was made in it.
    """
    found = []
    for stack, evaluating, number in zip(run.stack.tolist(), run.evaluating.tolist(), length_of.tolist(), strict=True):
        shown = stacks[stack]
        kind = shown.kind
        if not kind and not shown.trains:
            if (shown.forward and (evaluating or shown.no_gradients)) or (evaluating and shown.loads):
                kind = EVALUATION
            elif shown.loads and 0 <= number < new_epoch.size and new_epoch[number]:
                kind = EPOCH_CHANGE
        found.append(kind)
    return _alike_in_a_function(run, stacks, found)


def _alike_in_a_function(run: WholeRun, stacks: Sequence[Stack], kinds: list[str]) -> list[str]:
    """The kinds, of one function below the loop alike: its forward passes are of a rollout where it steps an
    environment, too, and samples that show no kind are of the kind that most others show.
    """
    shown = [stacks[each] for each in run.stack.tolist()]
    entries = [function_of(run.frames[each.entry]) if each.entry >= 0 else "" for each in shown]
    acting = {entry for entry, kind in zip(entries, kinds, strict=True) if kind == ROLLOUT}
    found = [
        ROLLOUT if kind == EVALUATION and entry in acting else kind for entry, kind in zip(entries, kinds, strict=True)
    ]
    counts: dict[str, Counter[str]] = {}
    for entry, kind in zip(entries, found, strict=True):
        counts.setdefault(entry, Counter())[kind] += 1
    most = {entry: each.most_common(1)[0][0] for entry, each in counts.items()}
    return [
        most[entry] if not kind and entry and not each.trains else kind
        for entry, kind, each in zip(entries, found, shown, strict=True)
    ]


def common(numbers: Ints) -> list[tuple[int, int]]:
    """The values and how often each comes, the most frequent first."""
    values, counts = np.unique(numbers, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [(int(values[each]), int(counts[each])) for each in order]
