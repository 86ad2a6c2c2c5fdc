"""Which kind of work between steps does a sample of the training thread show, and in which line?

The functions on the stack when the optimizer is asked for its step are the loop: they are there in every step, whatever
they are called. What is called below them, and computes no gradients, may be something else than a step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from perfdoctor.model.columns import Ints, Mask
from perfdoctor.model.whole_run import WholeRun
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.names import python_code
from perfdoctor.vocabulary.pauses import EPOCH_CHANGE, EVALUATION, LEARNING_RATE_SEARCH, ROLLOUT, kind_of_frame

_LINE = regex(r"\(\d+\): ")
_NO_KIND = ""


class Frames(Struct, frozen=True):
    """What each frame of a run shows by itself: its function, its kind ("" for none), and the numbers of the frames
    that compute gradients or update parameters, that run a module, and that wait for a loader.
    """

    functions: Sequence[str]
    kinds: Sequence[str]
    training: frozenset[int]
    forward: frozenset[int]
    loading: frozenset[int]


class Stack(Struct, frozen=True):
    """What one stack shows. `kind`: of work between steps, "" for none by its frames alone; `trains`: it computes
    gradients or updates parameters; `forward`, `loads`: it runs a module, waits for a loader; `no_gradients`, `acts`:
    a line of it is inside of `torch.no_grad()`, in a loop that steps an environment. `entry`: the outermost frame below
    the loop, of the user's own where there is one, and -1 for none; `caller`: the innermost frame of the loop, -1 for
    none.
    """

    kind: str
    trains: bool
    forward: bool
    loads: bool
    no_gradients: bool
    acts: bool
    entry: int
    caller: int

    @property
    def place(self) -> tuple[int, int]:
        """What is compared: the frame below the loop, and the line of the loop that calls it."""
        return self.entry, self.caller


def function_of(frame: str) -> str:
    """Return `train.py: main` for the frame `train.py(12): main`."""
    return _LINE.sub(": ", frame, count=1)


def frames_of(run: WholeRun) -> Frames:
    """Return what each frame of the run shows by itself."""

    def matching(*patterns: re.Pattern[str]) -> frozenset[int]:
        return frozenset(
            number for number, frame in enumerate(run.frames) if any(pattern.search(frame) for pattern in patterns)
        )

    return Frames(
        functions=[function_of(frame) for frame in run.frames],
        kinds=[kind_of_frame(frame) for frame in run.frames],
        training=matching(python_code.BACKWARD, python_code.UPDATE),
        forward=matching(python_code.FORWARD),
        loading=matching(python_code.LOADER),
    )


def loop_functions(run: WholeRun, frames: Frames, sites: Mapping[str, str], apart: frozenset[str]) -> frozenset[str]:
    """Return the functions on the stack when a step of the training is asked for, as `function_of` names them.

    Args:
        run: The run.
        frames: Its frames.
        sites: The functions that ask for a step of the training, and who calls each there.
        apart: Functions that ask for other steps.
    """
    found = set(sites)
    for stack in run.stacks:
        names = [frames.functions[frame] for frame in stack]
        inner = next((at for at, name in enumerate(names) if name in sites), None)
        if inner is not None and apart.isdisjoint(names) and names[inner + 1 : inner + 2] == [sites[names[inner]]]:
            found.update(names[inner:])
    return frozenset(found)


def read_stacks(run: WholeRun, frames: Frames, loop: frozenset[str], apart: frozenset[str]) -> list[Stack]:
    """Return what each of the run's stacks shows.

    Args:
        run: The run.
        frames: Its frames.
        loop: The functions of the training's loop.
        apart: Functions that ask for other steps.
    """
    return [_read(run, frames, stack, loop, apart) for stack in run.stacks]


def _read(run: WholeRun, frames: Frames, stack: Sequence[int], loop: frozenset[str], apart: frozenset[str]) -> Stack:
    others = [number for number, frame in enumerate(stack) if frames.functions[frame] in apart]
    # Below the loop lies what its functions call, also if that calls one of them again; below another one that asks for
    # steps, all of that.
    at = others[-1] + 1 if others else _behind_loop(frames, stack, loop)
    below = list(stack[:at])[::-1]  # outermost first
    otherwise = LEARNING_RATE_SEARCH if others else _NO_KIND
    kinds = (frames.kinds[frame] or (ROLLOUT if frame in run.acting else _NO_KIND) for frame in below)
    kind = next(filter(None, kinds), otherwise)
    trains = kind != LEARNING_RATE_SEARCH and not frames.training.isdisjoint(stack)
    own = [frame for frame in below if frame in run.own]
    return Stack(
        kind=_NO_KIND if trains else kind,
        trains=trains,
        forward=not frames.forward.isdisjoint(stack),
        loads=not frames.loading.isdisjoint(stack),
        no_gradients=not run.without_gradients.isdisjoint(stack),
        acts=not run.acting.isdisjoint(stack),
        entry=next(iter([*own, *below]), -1),
        caller=stack[at] if at < len(stack) else -1,
    )


def _behind_loop(frames: Frames, stack: Sequence[int], loop: frozenset[str]) -> int:
    """How many frames, innermost first, lie below the loop; all, where it is not on the stack."""
    is_loop = [frames.functions[frame] in loop for frame in stack]
    if not any(is_loop):
        return len(stack)
    outermost = len(stack) - is_loop[::-1].index(True)  # what lies around it starts the program
    return next((at for at in range(outermost, 0, -1) if not is_loop[at - 1]), 0)


def kinds_of_samples(
    run: WholeRun, frames: Frames, stacks: Sequence[Stack], length_of: Ints, new_epoch: Mask
) -> list[str]:
    """Return the kind that each sample shows, "" for none.

    Args:
        run: The run.
        frames: Its frames.
        stacks: What its stacks show.
        length_of: In which length between steps each sample lies, -1 for none.
        new_epoch: For each of these lengths, whether an iterator over a loader was made in it.
    """
    shown = [stacks[each] for each in run.stack.tolist()]
    begins = [number >= 0 and bool(new_epoch[number]) for number in length_of.tolist()]
    kinds = [_kind(each, *of) for each, *of in zip(shown, run.evaluating.tolist(), begins, strict=True)]
    entries = [frames.functions[each.entry] if each.entry >= 0 else "" for each in shown]
    return _alike_in_a_function(shown, entries, kinds)


def _kind(shown: Stack, evaluating: bool, new_epoch: bool) -> str:
    """The kind of a stack; without one by its frames, what is known of the moment says which it is."""
    if shown.kind or shown.trains:
        return shown.kind
    if (shown.forward and (evaluating or shown.no_gradients)) or (evaluating and shown.loads):
        return ROLLOUT if shown.acts else EVALUATION
    return EPOCH_CHANGE if shown.loads and new_epoch else _NO_KIND


def _alike_in_a_function(shown: Sequence[Stack], entries: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """The kinds, those of one function below the loop alike.

    Its forward passes are of a rollout where it steps an environment, too, and samples that show no kind are of the
    kind that most others show. A change of epoch is one of the moment, and not of the function.
    """
    acting = {entry for entry, kind in zip(entries, kinds, strict=True) if kind == ROLLOUT}
    found = [
        ROLLOUT if kind == EVALUATION and entry in acting else kind for entry, kind in zip(entries, kinds, strict=True)
    ]
    counts: dict[str, Counter[str]] = {}
    for entry, kind in zip(entries, found, strict=True):
        counts.setdefault(entry, Counter())[kind] += 1
    most = {entry: each.most_common(1)[0][0] for entry, each in counts.items()}
    return [
        most[entry] if not kind and entry and not each.trains and most[entry] != EPOCH_CHANGE else kind
        for entry, kind, each in zip(entries, found, shown, strict=True)
    ]
