"""Steps that are longer than others, and the part that did it, against plain Python."""

from __future__ import annotations

from itertools import combinations
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest
from builders import draw, only_place

from perfdoctor.metrics.accounting.outliers import drift, own_durations, same_work, step_parts
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import Frame


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


def _place_of(kernels_per_step: list[int]) -> SimpleNamespace:
    """Steps of one ms, each with so many kernels of eight blocks."""
    starts = np.concatenate([np.linspace(n * 1e6, n * 1e6 + 9e5, many) for n, many in enumerate(kernels_per_step)])
    frame = Frame({"start_ns": starts.astype(np.int64), "blocks": np.full(starts.size, 8, np.int64)})
    bounds = np.arange(len(kernels_per_step) + 1) * 1_000_000
    window = Intervals.single(0, int(bounds[-1]))
    return SimpleNamespace(kernels=frame, window=window, steps=SimpleNamespace(even_bounds=bounds))


@pytest.mark.parametrize(
    ("kernels", "same"),
    [
        ([50, 50, 50, 50, 50], True),
        ([50, 50, 60, 50, 50], False),  # one long step with more to do
        ([50, 46, 53, 54, 50], True),  # no more than the queue makes the others differ by
        ([50, 46, 58, 54, 50], False),
        ([50, 50, 30, 50, 50], True),  # less work made no step long
    ],
)
def test_a_long_step_with_no_more_work_than_usual_was_slower(kernels: list[int], same: bool) -> None:
    assert same_work(_place_of(kernels), np.array([2]), 0.02) is same


def test_without_grid_sizes_nobody_knows_whether_it_was_more_work() -> None:
    place = _place_of([50, 50, 50])
    place.kernels = place.kernels.with_columns(blocks=np.zeros(150, np.int64))
    assert same_work(place, np.array([1]), 0.02) is False
