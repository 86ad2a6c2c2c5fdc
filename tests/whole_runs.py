"""Whole runs as text would draw them: steps of one length, and something else between some of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.model.whole_run import WholeRun

#: Outermost first, as somebody would write them.
LOOP = ("train.py(40): <module>", "train.py(30): main")
STEP = (
    *LOOP,
    "site-packages/torch/_tensor.py(600): Tensor.backward",
    "/torch/autograd/graph.py(979): _engine_run_backward",
)
FORWARD = (*LOOP, "/torch/nn/modules/module.py(1778): Module._wrapped_call_impl", "train.py(8): Net.forward")


class Between(Struct, frozen=True):
    """`ns` of this stack (outermost first) behind every so many steps, from `first` on; the first time more."""

    stack: tuple[str, ...]
    every: int
    ns: int
    first: int = 0
    evaluating: bool = False
    no_gradients: bool = False
    acting: bool = False
    written_bytes: int = 0
    first_more_ns: int = 0


def whole_run(
    *between: Between, steps: int = 200, step_ns: int = 20_000_000, pause_ns: int = 7_300_000,
    windows: Sequence[tuple[int, int]] = (), noise: float = 0.0, site: str = "train.py(30): main",
    iterators_every: int = 0, rank: int = 0,
) -> WholeRun:  # fmt: skip
    """A run whose thread is sampled every `pause_ns`: in a step half of the time in the forward pass."""
    random = np.random.default_rng(1)
    pieces: list[tuple[int, int, tuple[str, ...], Between | None]] = []
    now, ends, iterators = 0, [], []
    for number in range(steps):
        length = round(step_ns * (1 + noise * random.standard_normal()))
        pieces += [(now, now + length // 2, FORWARD, None), (now + length // 2, now + length, STEP, None)]
        now += length
        ends.append(now)
        if iterators_every and (number + 1) % iterators_every == 0:
            iterators.append([now, now + 1000, 0])
        for each in between:
            if number >= each.first and (number + 1) % each.every == 0:
                ns = each.ns + each.first_more_ns * (number + 1 == each.every)
                pieces.append((now, now + ns, each.stack, each))
                now += ns
    frames: dict[str, int] = {}
    stacks: dict[tuple[int, ...], int] = {}
    without: set[int] = set()
    acting: set[int] = set()
    rows = []
    written = 0
    for begin, end, stack, each in pieces:
        numbers = tuple(frames.setdefault(frame, len(frames)) for frame in reversed(stack))
        if each is not None and each.no_gradients:
            without.add(numbers[0])
        if each is not None and each.acting:
            acting.add(numbers[0])
        at = -(-begin // pause_ns) * pause_ns
        while at < end:
            if each is not None:
                written += each.written_bytes * pause_ns // each.ns
            number = stacks.setdefault(numbers, len(stacks))
            rows.append((at, number, each is not None and each.evaluating, written))
            at += pause_ns
    columns = list(zip(*rows, strict=True))
    return WholeRun(
        rank=rank, start_unix_ns=10**18, process_unix_ns=10**18 - 2 * 10**9, end_ns=now + 10**6, parameter_bytes=10**6,
        ends_ns=np.array(ends), sites=np.zeros(steps, dtype=np.int64), site_lines=[site], site_callers=["train.py(38): <module>"], windows=windows,
        at_ns=np.array(columns[0]), stack=np.array(columns[1]), evaluating=np.array(columns[2], dtype=bool),
        written_bytes=np.array(columns[3]), frames=list(frames), begins=[1] * len(frames),
        own=frozenset(number for frame, number in frames.items() if frame.startswith("train.py")),
        without_gradients=frozenset(without), acting=frozenset(acting), stacks=[list(each) for each in stacks],
        iterators=np.array(iterators, dtype=np.int64).reshape(-1, 3), code={},
    )  # fmt: skip


def share_of(each: Between, steps: int = 200, step_ns: int = 20_000_000, others: Sequence[Between] = ()) -> float:
    """The share of `each` from the first step's end to the last of all, by plain arithmetic."""
    took = {
        one: one.ns * sum((n + 1) % one.every == 0 and n >= one.first for n in range(steps)) for one in (each, *others)
    }
    return took[each] / (step_ns * (steps - 1) + sum(took.values()))


EVALUATION = Between(
    (*LOOP, "train.py(17): evaluate", "/torch/nn/modules/module.py(1778): Module._call_impl"), 5, 40_000_000
)
CHECKPOINT = Between((*LOOP, "train.py(22): keep", "/torch/serialization.py(900): save"), 20, 150_000_000)
LOGGING = Between((*LOOP, "train.py(24): note", "site-packages/tensorboard/x.py(3): write"), 10, 50_000_000)
PLOTTING = Between((*LOOP, "train.py(26): show", "site-packages/matplotlib/figure.py(3): draw"), 25, 200_000_000)
ROLLOUT = Between((*LOOP, "train.py(28): CartEnv.step"), 8, 100_000_000)
SEARCH = Between((*LOOP, "train.py(29): find_learning_rate", *STEP[2:]), 40, 500_000_000)
EPOCH = Between((*LOOP, "/torch/utils/data/dataloader.py(440): DataLoader._get_iterator"), 12, 90_000_000)
OTHER = Between((*LOOP, "train.py(35): refresh"), 7, 60_000_000)
EVERY_KIND = {
    "evaluation": EVALUATION, "checkpoint": CHECKPOINT, "logging": LOGGING, "plotting": PLOTTING, "rollout": ROLLOUT,
    "learning_rate_search": SEARCH, "epoch_change": EPOCH, "unknown": OTHER,
}  # fmt: skip


def run_with(kind: str) -> WholeRun:
    """A run with one kind of work between its steps."""
    between = EVERY_KIND[kind]
    return whole_run(between, iterators_every=between.every if kind == "epoch_change" else 0)
