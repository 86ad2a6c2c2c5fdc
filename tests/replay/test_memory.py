"""Does a replay hold no more than twice what the timeline does?"""

from __future__ import annotations

import pytest
from bench import large_trace
from replay import bytes_of, replay_peak_bytes

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.readers.open import read

KERNELS = 20_000


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return prepare(read([large_trace(tmp_path_factory.mktemp("large"), 3 * KERNELS)]))


def test_a_replay_holds_no_more_than_twice_the_timeline(run):
    assert replay_peak_bytes(run, 2 * KERNELS) <= 2 * bytes_of(run.timeline)


def test_the_timeline_is_counted_by_its_columns(run):
    kernels = len(run.timeline.kernels)
    # four numbers of where, two of when, correlation, name, two sizes, and whether it is a graph
    assert bytes_of(run.timeline) > kernels * (7 * 8 + 4 + 2 * 8 + 1)
    assert kernels > 0.99 * KERNELS
