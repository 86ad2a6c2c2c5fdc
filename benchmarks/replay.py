"""How long does a replay take and what does it hold, against reading? 100,000 kernels, in one process, as ratios.

Part of `make bench`. A diagnosis builds the graph once and plays it some times for each finding. Memory is what Python
and numpy ask for, against the bytes of the timeline's columns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bench import large_trace

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.columns import Text
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.open import read
from perfdoctor.replay.edits.shorter import with_faster_host
from perfdoctor.replay.graph.build import graph_of
from perfdoctor.replay.graph.order import order_of
from perfdoctor.replay.graph.simulate import simulate

KERNELS = 100_000
_ROUNDS = 5
_Result = TypeVar("_Result")


def _timed(work: Callable[[], _Result]) -> tuple[float, _Result]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def _round(file: Path) -> tuple[float, float, float, int]:
    """Seconds for reading, building and simulating; how many nodes."""
    reading, run = _timed(lambda: prepare(read([file])))
    (place,) = run.places
    building, graph = _timed(lambda: graph_of(place, 2 * KERNELS))
    assert graph is not None
    simulating, _ = _timed(lambda: simulate([graph]))
    return reading, building, simulating, len(graph)


def bytes_of(timeline: Timeline) -> int:
    """Of all columns; of text its codes alone."""
    columns = [column for frame in timeline.frames.values() for column in frame.columns.values()]
    return sum(column.codes.nbytes if isinstance(column, Text) else column.nbytes for column in columns)


def replay_peak_bytes(run: Run, most_work: int) -> int:
    """The most that is held at any moment while the graph is built, and played unchanged and with a faster host."""
    (place,) = run.places
    graph_of(place, 1)  # what the accounting of a place works out once is not the replay's
    tracemalloc.start()
    try:
        graph = graph_of(place, most_work)
        assert graph is not None
        orders = [order_of(graph)]
        simulate([graph], orders)
        simulate([with_faster_host(graph, 0.5, Intervals.empty())], orders)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        file = large_trace(Path(scratch), 3 * KERNELS)
        rounds = [_round(file) for _ in range(_ROUNDS)]
        run = prepare(read([file]))
    print(f"\nA replay of {KERNELS:,} kernels and their launches, {rounds[0][3]:,} nodes in the steps that are played")
    for index, name in enumerate(("read and prepare", "build the graph", "simulate it")):
        seconds = statistics.median(each[index] for each in rounds)
        ratio = statistics.median(each[index] / each[0] for each in rounds)
        print(f"  {name:32s} {seconds:7.2f} s   {ratio:5.2f} × reading")
    held, columns = replay_peak_bytes(run, 2 * KERNELS), bytes_of(run.timeline)
    print(f"  {'memory':32s} {held / 1e6:7.1f} MB  {held / columns:5.2f} × the timeline's {columns / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
