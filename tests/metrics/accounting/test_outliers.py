"""Steps that are longer than others, and the part that did it, against plain Python."""

from __future__ import annotations

from itertools import combinations
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest
from builders import BASE_NS, draw, only_place, timeline

from perfdoctor.metrics.accounting.outliers import drift, own_durations, same_work, step_parts, step_rows
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


UNIT_NS = 100_000


def test_starts_and_lengths_are_those_of_the_steps():
    rows = step_rows(only_place(draw(kernels="####  ", launched_us_before=50, repeat=9)), 6, 0.2)
    steps = rows.duration_ns.size
    assert rows.start_ns.tolist() == [6 * UNIT_NS * n for n in range(steps)]
    assert rows.duration_ns.tolist() == [6 * UNIT_NS] * steps
    assert sum(parts[0] for parts in rows.parts_ns.values()) == 6 * UNIT_NS
    assert rows.grown == ("",) * steps


def test_each_long_step_names_its_own_part():
    """One of twelve steps computes for longer, and another one communicates."""
    kernels, collectives, calls, ranges = [], [], [], []
    at = BASE_NS
    for step in range(12):
        computing, talking = (10 if step == 4 else 4) * UNIT_NS, (7 if step == 8 else 2) * UNIT_NS
        length = computing + talking + 6 * UNIT_NS
        ranges.append({"start_ns": at, "end_ns": at + length, "name": f"ProfilerStep#{step}"})
        calls += [{"start_ns": at + n * 1000, "end_ns": at + n * 1000 + 500, "name": "cudaLaunchKernel",
                   "correlation": 2 * step + n + 1} for n in range(2)]  # fmt: skip
        first, second = at + UNIT_NS, at + UNIT_NS + computing
        kernels.append({"start_ns": first, "end_ns": second, "name": "k", "correlation": 2 * step + 1})
        collectives.append(
            {"start_ns": second, "end_ns": second + talking, "name": "nccl", "correlation": 2 * step + 2}
        )
        at += length
    drawn = timeline(kernels=kernels, collectives=collectives, calls=calls, ranges=ranges)
    rows = step_rows(only_place(drawn), 6, 0.2)
    assert [part for part in rows.grown if part] == ["compute", "exposed_communication"]
    long = [row for row, part in enumerate(rows.grown) if part]
    assert long[1] - long[0] == 4
    assert rows.parts_ns["compute"][long[0]] == 10 * UNIT_NS


def test_without_steps_there_are_no_rows():
    assert step_rows(only_place(draw(kernels="##  ## ", launched_us_before=50)), 6, 0.2) is None
