"""The program's own measure of its steps and of what comes between them, which a recording is held against.

beats = Beats()
for batch in loader:
    ...
    beats.step()                      # the program itself knows where its step ends
    if number % 20 == 0:
        with beats.doing("evaluation"):   # or beats.begin("evaluation") … beats.end()
            evaluate(model)
beats.finish()

prints `a step takes 12.34 ms`, which is a step without what comes between; `the training takes 5.678 s`, from the first
step to the last; and for each kind `evaluation takes 0.480 of the training: 2.725 s, every 5 steps`. It writes when each
step ended where PROGRAM_BEATS names a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

#: Steps that a median leaves out: memory is allocated, libraries choose kernels, workers start.
WARM_UP = 10
#: A step is a mean over so many, as every second or tenth may do more; the median of such means leaves out disturbed ones.
BLOCK = 10


class Beats:
    """When each step ended and what came between, in ns of `perf_counter`."""

    def __init__(self) -> None:
        #: Brings `perf_counter` to ns since 1970: the clock that torch's traces can be brought to.
        self.since_1970_ns = time.time_ns() - time.perf_counter_ns()
        self.ends_ns: list[int] = []
        self.between: list[tuple[str, int, int, int]] = []  # what, from, until, how many steps had ended
        self._begun: list[tuple[str, int]] = []

    def step(self) -> None:
        self.ends_ns.append(time.perf_counter_ns())

    def begin(self, kind: str) -> None:
        self._begun.append((kind, time.perf_counter_ns()))

    def end(self, but_s: float = 0.0) -> None:
        """Note that what was begun last has ended; `but_s` seconds of it were a step."""
        now_ns = time.perf_counter_ns()
        kind, begun_ns = self._begun.pop()
        self.between.append((kind, begun_ns, max(now_ns - round(but_s * 1e9), begun_ns), len(self.ends_ns)))

    @contextmanager
    def doing(self, kind: str) -> Iterator[None]:
        self.begin(kind)
        yield
        self.end()

    def _without_between(self) -> list[int]:
        """The ends of steps on a clock that stands still while something comes between."""
        ends_ns = list(self.ends_ns)
        for _, begun_ns, ended_ns, _ in self.between:
            for number in range(bisect_right(self.ends_ns, begun_ns), len(ends_ns)):
                ends_ns[number] -= ended_ns - begun_ns
        return ends_ns

    def bare_step_s(self) -> float:
        """The median of the last steps, in seconds; 0 where there are too few."""
        last = self._without_between()[-BLOCK - 1 :]
        return statistics.median(b - a for a, b in pairwise(last)) / 1e9 if len(last) > 2 else 0.0

    def finish(self) -> None:
        ends_ns = self._without_between()
        lengths_ns = [(b - a) / BLOCK for a, b in pairwise(ends_ns[WARM_UP::BLOCK])]
        if lengths_ns and int(os.environ.get("RANK", "0")) == 0:
            step_ns = statistics.median(lengths_ns)
            print(f"a step takes {step_ns / 1e6:.3f} ms", flush=True)
            self._print_training(step_ns)
        folder = os.environ.get("PROGRAM_BEATS")
        if folder:
            noted = {
                "ends_ns": [end + self.since_1970_ns for end in self.ends_ns],
                "steps_ns": [b - a for a, b in pairwise(ends_ns)],
                "between": [
                    (kind, begun + self.since_1970_ns, ended + self.since_1970_ns)
                    for kind, begun, ended, _ in self.between
                ],
            }
            (Path(folder) / f"{os.getpid()}.json").write_text(json.dumps(noted))

    def _print_training(self, step_ns: float) -> None:
        """The training begins with the first step, or with what comes before it."""
        begin_ns = min(self.ends_ns[0] - step_ns, *(begun for _, begun, _, _ in self.between), self.ends_ns[0])
        end_ns = max(self.ends_ns[-1], *(ended for _, _, ended, _ in self.between), 0)
        training_ns = end_ns - begin_ns
        print(f"the training takes {training_ns / 1e9:.3f} s", flush=True)
        for kind in dict.fromkeys(kind for kind, *_ in self.between):
            spent_ns = sum(ended - begun for each, begun, ended, _ in self.between if each == kind)
            after = [number for each, _, _, number in self.between if each == kind]
            apart = [b - a for a, b in pairwise(after)]
            every = f", every {statistics.median_low(apart)} steps" if apart else ""
            print(
                f"{kind} takes {spent_ns / training_ns:.3f} of the training: {spent_ns / 1e9:.3f} s{every}", flush=True
            )


def arguments(steps: int, *fixes: str) -> argparse.Namespace:
    """`--steps N` and `--fix NAME`: the program with one of its faults mended by hand."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--fix", choices=fixes, default="")
    return parser.parse_args()
