"""Steps that are longer than others, and the part that did it, against plain Python."""

from __future__ import annotations

from itertools import combinations
from statistics import median

import numpy as np
import pytest
from builders import draw, only_place

from perfdoctor.metrics.outliers import drift, own_durations, step_parts


def test_the_parts_of_each_step_sum_to_it():
    place = only_place(draw(kernels="###  ## ", host="l    l  ", copies="   h    ", repeat=8))
    parts = step_parts(place)
    total = sum(int(ns.sum()) for ns in parts.values())
    assert total == place.window_ns
    assert own_durations(parts).tolist() == place.steps.durations_ns.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_the_slope_is_the_median_over_all_pairs(seed):
    values = np.random.default_rng(seed).integers(1_000, 9_000, 17)
    pairs = list(combinations(enumerate(values.tolist()), 2))
    found = drift(values)
    assert found.ns_per_step == pytest.approx(median((b - a) / (j - i) for (i, a), (j, b) in pairs))
    assert found.rising_share == pytest.approx(sum(b > a for (_, a), (_, b) in pairs) / len(pairs))


def test_a_long_series_is_thinned_and_keeps_its_slope():
    assert drift(np.arange(5_000, dtype=np.int64) * 7).ns_per_step == pytest.approx(7)
