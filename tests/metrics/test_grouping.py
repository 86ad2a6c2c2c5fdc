"""Counts, sums, medians and prevailing values by group: as plain Python finds them."""

from __future__ import annotations

import statistics
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.metrics.grouping import combined, number_in_step, of_known, prevailing, ratio, spread, weighted_mean
from perfdoctor.model.timeline import UNKNOWN

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**42)), max_size=40)


def arrays(rows):
    return (np.array(column, dtype=np.int64) for column in (zip(*rows, strict=True) if rows else ([], [])))


@given(ROWS)
def test_a_group_has_the_numbers_that_python_finds(rows):
    group, values = arrays(rows)
    found = spread(group, values, 6)
    for number in range(6):
        own = [value for each, value in rows if each == number]
        assert found.count[number] == len(own)
        assert found.total[number] == sum(own)
        if own:
            assert found.median[number] == pytest.approx(statistics.median(own), rel=1e-12)
            assert (found.least[number], found.most[number]) == (min(own), max(own))
            assert found.mean[number] == pytest.approx(statistics.fmean(own), rel=1e-12)
        else:
            assert np.isnan([found.median[number], found.least[number], found.most[number], found.mean[number]]).all()


@given(ROWS)
def test_rows_are_one_group_where_all_columns_agree(rows):
    first, second = arrays(rows)
    second = second % 3 - 1  # also unknown ones
    group, row_of = combined(first, second)
    keys = list(zip(first.tolist(), second.tolist(), strict=True))
    assert len(set(keys)) == row_of.size
    for number, key in zip(group.tolist(), keys, strict=True):
        assert keys[row_of[number]] == key


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 4), st.integers(1, 99)), max_size=30))
def test_the_heaviest_value_prevails(rows):
    columns = [np.array(column, dtype=np.int64) for column in (zip(*rows, strict=True) if rows else ([], [], []))]
    found = prevailing(*columns, 4)
    weights = defaultdict(lambda: defaultdict(int))
    for group, value, weight in rows:
        weights[group][value] += weight
    for number in range(4):
        if number in weights:
            assert weights[number][found[number]] == max(weights[number].values())
        else:
            assert found[number] == UNKNOWN


def test_a_share_of_nothing_is_not_known():
    found = ratio(np.array([1, 0, 3]), np.array([2, 0, 0]))
    assert found[0] == 0.5
    assert np.isnan(found[1:]).all()


def test_of_the_spread_some_groups_can_be_taken_in_another_order():
    found = spread(np.array([0, 1, 1]), np.array([5, 7, 9]), 2).take(np.array([1, 0]))
    assert (found.count.tolist(), found.total.tolist(), found.median.tolist()) == ([2, 1], [16, 5], [8, 5])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_rows_of_a_name_are_numbered_in_each_step(rows):
    name, step = arrays(rows)
    start = np.arange(len(rows), dtype=np.int64)
    expected = [rows[:at].count(row) for at, row in enumerate(rows)]
    assert number_in_step(name, step, start).tolist() == expected
    backwards = number_in_step(name[::-1], step[::-1], start[::-1])
    assert backwards[::-1].tolist() == expected


def test_a_number_of_known_values_leaves_the_others_out():
    assert of_known(np.nanmax, np.array([1.0, np.nan, 3.0])) == 3
    assert np.isnan(of_known(np.nanmax, np.array([np.nan])))


def test_a_weighted_mean_is_of_what_is_known_and_weighs_anything():
    assert weighted_mean(np.array([1.0, 4.0, np.nan, 9.0]), np.array([2, 1, 5, 0])) == 2
    assert np.isnan(weighted_mean(np.array([9.0, np.nan]), np.array([0, 1])))
