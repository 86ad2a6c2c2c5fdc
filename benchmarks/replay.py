"""How long does a replay take, against reading the same recording? 100,000 kernels, in one process, as ratios.

Part of `make bench`. A diagnosis builds the graph once and plays it some times for each finding.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bench import large_trace

from perfdoctor.ingest.reader import read
from perfdoctor.metrics.run import prepare
from perfdoctor.replay.build import graph_of
from perfdoctor.replay.play import play

KERNELS = 100_000
_ROUNDS = 5
_Result = TypeVar("_Result")


def _timed(work: Callable[[], _Result]) -> tuple[float, _Result]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def _round(file: Path) -> tuple[float, float, float, int]:
    """Seconds for reading, building and playing; how many nodes."""
    reading, run = _timed(lambda: prepare(read([file])))
    (place,) = run.places
    building, graph = _timed(lambda: graph_of(place, 2 * KERNELS))
    assert graph is not None
    playing, _ = _timed(lambda: play([graph]))
    return reading, building, playing, len(graph)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        file = large_trace(Path(scratch), 3 * KERNELS)
        rounds = [_round(file) for _ in range(_ROUNDS)]
    print(f"\nA replay of {KERNELS:,} kernels and their launches, {rounds[0][3]:,} nodes in the steps that are played")
    for index, name in enumerate(("read and prepare", "build the graph", "play it")):
        seconds = statistics.median(each[index] for each in rounds)
        ratio = statistics.median(each[index] / each[0] for each in rounds)
        print(f"  {name:32s} {seconds:7.2f} s   {ratio:5.2f} × reading")


if __name__ == "__main__":
    main()
