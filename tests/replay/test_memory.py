"""Does a replay hold little more than twice what the timeline does, and less where there are shapes or ranges?"""

from __future__ import annotations

import tracemalloc

import grown
import pytest
from folders import FIXTURES

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

KERNELS = 20_000
#: Of ops, calls and kernels alone, which is the least that a timeline with launches holds. Public recordings: 1.3.
MOST = 2.25


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    source = FIXTURES / "launch-bound" / "torch" / "rank0.pt.trace.json.gz"
    return prepare(read([grown.grow(source, tmp_path_factory.mktemp("large") / "grown.json", KERNELS // 1_280)]))


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


def test_a_replay_holds_little_more_than_twice_the_timeline(run):
    assert replay_peak_bytes(run, 2 * KERNELS) <= MOST * bytes_of(run.timeline)


def test_the_timeline_is_counted_by_its_columns(run):
    kernels = len(run.timeline.kernels)
    # four numbers of where, two of when, correlation, name, two sizes, and whether it is a graph
    assert bytes_of(run.timeline) > kernels * (7 * 8 + 4 + 2 * 8 + 1)
    assert kernels > 0.95 * KERNELS
