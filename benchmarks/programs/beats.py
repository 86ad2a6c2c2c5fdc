"""The program's own count of its steps, which a recording is held against.

beats = Beats()
for batch in loader:
    ...
    beats.step()      # the program itself knows where its step ends
beats.finish()        # prints `a step takes 12.34 ms`, writes the times where PROGRAM_BEATS names a folder
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from itertools import pairwise
from pathlib import Path

#: Steps that a median leaves out: memory is allocated, libraries choose kernels, workers start.
WARM_UP = 10
#: A step is a mean over so many, as every second or tenth may do more; the median of such means leaves out disturbed ones.
BLOCK = 10


class Beats:
    """When each step ended, in ns since 1970: the clock that torch's traces can be brought to."""

    def __init__(self) -> None:
        self.ends_ns: list[int] = []

    def step(self) -> None:
        self.ends_ns.append(time.time_ns())

    def finish(self) -> None:
        ends = self.ends_ns[WARM_UP::BLOCK]
        lengths = [(b - a) / BLOCK for a, b in pairwise(ends)]
        if lengths and int(os.environ.get("RANK", "0")) == 0:
            print(f"a step takes {statistics.median(lengths) / 1e6:.3f} ms", flush=True)
        folder = os.environ.get("PROGRAM_BEATS")
        if folder:
            (Path(folder) / f"{os.getpid()}.txt").write_text("\n".join(map(str, self.ends_ns)))


def arguments(steps: int, *fixes: str) -> argparse.Namespace:
    """`--steps N` and `--fix NAME`: the program with one of its faults mended by hand."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--fix", choices=fixes, default="")
    return parser.parse_args()
