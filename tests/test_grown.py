"""Is a grown recording a longer one of the same training? `benchmarks/grown.py`."""

from __future__ import annotations

import grown
import numpy as np
import pytest

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.run import Run
from perfdoctor.readers.open import read

COPIES = 3
SOURCES = {"kineto": grown.kineto_source(fixture=True), "nsys": grown.nsys_source(fixture=True)}


@pytest.fixture(scope="module", params=SOURCES)
def runs(request, tmp_path_factory) -> tuple[Run, Run]:
    source = SOURCES[request.param]
    into = tmp_path_factory.mktemp("grown") / source.name
    return prepare(read([source])), prepare(read([grown.grow(source, into, COPIES)]))


def test_every_row_is_there_again_later(runs):
    once, longer = (run.timeline.kernels for run in runs)
    size = len(once)
    assert len(longer) == COPIES * size
    start, end = longer["start_ns"].reshape(COPIES, size), longer["end_ns"].reshape(COPIES, size)
    assert (start - start[:, :1] == once["start_ns"] - once["start_ns"][0]).all()
    assert (end - start == once["end_ns"] - once["start_ns"]).all()
    assert (start[1:, 0] >= end[:-1].max(axis=1)).all()


def test_no_number_by_which_rows_find_each_other_is_there_twice(runs):
    _, longer = (run.timeline.kernels for run in runs)
    assert np.unique(longer["correlation"]).size == len(longer)


def test_there_are_more_steps(runs):
    once, longer = (run.places[0].steps.used for run in runs)
    assert longer == COPIES * (once + 1) - 1  # one less than recorded: the first warms up
