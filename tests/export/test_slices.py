"""Do slices come back from a track as they were put there, however they overlap?"""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.export.slices import Slices, edges, lanes

ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 2)), min_size=1, max_size=14)


def slices(rows):
    start, length, level = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    numbers = np.arange(len(rows))
    return Slices(start, start + length, level, numbers, numbers, numbers, numbers)


def played(lane):
    """What a stack makes of the events: (name, start, end, names around it)."""
    stack, done = [], []
    found = edges(lane)
    at = found.at_ns.tolist()
    assert at == sorted(at)
    for now, row, is_begin in zip(at, found.row.tolist(), found.is_begin.tolist(), strict=True):
        if is_begin:
            stack.append((int(lane.name[row]), now))
        else:
            name, begun = stack.pop()
            done.append((name, begun, now, tuple(around for around, _ in stack)))
    assert not stack
    return done


@given(ROWS)
def test_each_row_comes_back_with_its_own_times(rows):
    back = [each[:3] for lane in lanes(slices(rows)) for each in played(lane)]
    assert Counter(back) == Counter((number, start, start + length) for number, (start, length, _) in enumerate(rows))


@given(ROWS)
def test_what_is_around_a_row_contains_it(rows):
    for lane in lanes(slices(rows)):
        for _, start, end, around in played(lane):
            assert all(rows[each][0] <= start and end <= rows[each][0] + rows[each][1] for each in around)


def test_rows_that_nest_share_a_lane_and_the_lower_level_is_outside():
    (lane,) = lanes(slices([(0, 10, 1), (0, 10, 0), (2, 3, 2), (5, 5, 2), (5, 0, 2)]))
    around = {name: names for name, _, _, names in played(lane)}
    assert around == {1: (), 0: (1,), 2: (1, 0), 3: (1, 0), 4: (1, 0, 3)}


def test_rows_that_touch_need_one_lane_and_rows_that_cross_two():
    assert len(lanes(slices([(0, 5, 0), (5, 5, 0)]))) == 1
    assert [len(lane) for lane in lanes(slices([(0, 5, 0), (4, 5, 0), (5, 1, 0)]))] == [2, 1]
